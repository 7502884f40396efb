use super::*;

fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Rules {
        allow: read(allow),
        deny: read(deny),
    }
}

fn named(name: &str) -> Host {
    Host::Name(Name::parse(name).unwrap())
}

fn address(text: &str) -> Host {
    Host::Address(text.parse().unwrap())
}

#[test]
fn rules_read_as_they_are_written() {
    for (text, canonical) in [
        ("Example.com.", "example.com"),
        ("example.com:8443", "example.com:8443"),
        ("*.Example.com:443", "*.example.com:443"),
        ("192.0.2.7:5432", "192.0.2.7:5432"),
        ("192.0.2.0/24:5432", "192.0.2.0/24:5432"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:5432", "[2001:db8::1]:5432"),
        ("[2001:db8::/32]:5432", "[2001:db8::/32]:5432"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("[::ffff:192.0.2.7]:80", "192.0.2.7:80"),
        ("bücher.example", "xn--bcher-kva.example"),
    ] {
        let rule: Rule = text.parse().unwrap();
        assert_eq!(rule.to_string(), canonical);
        assert_eq!(canonical.parse::<Rule>().unwrap(), rule);
    }
}

#[test]
fn what_is_no_rule_says_why() {
    for (text, why) in [
        ("", "empty"),
        ("*", "*.example.com"),
        ("*.", "host name"),
        ("a.*.example", "wrong place"),
        ("*example.com", "wrong place"),
        ("example.com:0", "1 to 65535"),
        ("example.com:", "1 to 65535"),
        ("example.com:+80", "1 to 65535"),
        ("example.com:65536", "1 to 65535"),
        ("example.com:25", "port 25"),
        ("127.1", "host name"),
        ("http://example.com", "URL"),
        ("0.0.0.0/0", "8 or longer"),
        ("::/0", "16 or longer"),
        ("198.18.0.1", "stand for names"),
        ("198.0.0.0/8", "stand for names"),
        ("fd00:cb::7", "stand for names"),
        ("[example.com]", "brackets"),
        ("[::1", "closing bracket"),
        ("[::1]80", "behind the bracket"),
        ("192.0.2.1/24", "192.0.2.0/24"),
    ] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn deny_wins_and_ports_count() {
    let rules = rules(
        &["example.com", "*.example.com:8443", "192.0.2.0/24:5432"],
        &["bad.example.com", "192.0.2.9:5432"],
    );
    for (host, port, result) in [
        (named("example.com"), 80, Ok(())),
        (named("example.com"), 443, Ok(())),
        (named("example.com"), 8443, Err(Reason::PortNotAllowed)),
        (named("example.com"), 25, Err(Reason::MailPort)),
        (named("a.example.com"), 8443, Ok(())),
        (named("a.example.com"), 443, Err(Reason::PortNotAllowed)),
        (named("bad.example.com"), 8443, Err(Reason::Denied)),
        (named("evil.example"), 443, Err(Reason::NotAllowed)),
        (address("192.0.2.8"), 5432, Ok(())),
        (address("::ffff:192.0.2.8"), 5432, Ok(())),
        (address("192.0.2.9"), 5432, Err(Reason::Denied)),
        (address("192.0.2.8"), 443, Err(Reason::PortNotAllowed)),
        (address("192.0.3.8"), 5432, Err(Reason::NotAllowed)),
    ] {
        assert_eq!(rules.check(&host, port), result, "{host}:{port}");
    }
    assert_eq!(
        rules.check_name(&Name::parse("a.example.com").unwrap()),
        Ok(())
    );
    let denied = Name::parse("bad.example.com").unwrap();
    assert_eq!(rules.check_name(&denied), Err(Reason::Denied));
    assert_eq!(rules.ports(), [80, 443, 5432, 8443].into());
    let networks: Vec<String> = rules.networks().iter().map(Network::to_string).collect();
    assert_eq!(networks, ["192.0.2.0/24"]);
    assert!(rules.writes_out("192.0.2.1".parse().unwrap(), 5432));
    assert!(!rules.writes_out("192.0.2.1".parse().unwrap(), 80));
}

#[test]
fn a_request_can_only_narrow() {
    let operator = rules(
        &["*.example.com", "192.0.2.0/24:5432"],
        &["bad.example.com"],
    );
    for (allow, narrower) in [
        (&["a.example.com"][..], true),
        (&["*.b.example.com:443"], true),
        (&["192.0.2.7:5432"], true),
        (&[], true),
        (&["example.com"], false),
        (&["a.example.com:22"], false),
        (&["192.0.2.7"], false),
        (&["192.0.0.0/16:5432"], false),
        (&["a.example.com", "*.com"], false),
    ] {
        let request = rules(allow, &[]);
        let within = request.clone().within(&operator);
        assert_eq!(within.is_ok(), narrower, "{allow:?}");
        if let Ok(within) = within {
            assert!(within.narrower_than(&operator));
            assert!(within.check(&named("bad.example.com"), 443).is_err());
        }
        // It does not repeat what the operator denies.
        assert!(!request.narrower_than(&operator));
    }
    let error = rules(&["evil.example"], &[]).within(&operator).unwrap_err();
    assert!(error.to_string().contains("*.example.com"), "{error}");
}

#[test]
fn rules_survive_json() {
    let rules = rules(&["example.com", "[2001:db8::1]:22"], &["*.example.com"]);
    let json = serde_json::to_string(&rules).unwrap();
    assert_eq!(
        json,
        r#"{"allow":["example.com","[2001:db8::1]:22"],"deny":["*.example.com"]}"#
    );
    assert_eq!(serde_json::from_str::<Rules>(&json).unwrap(), rules);
    let error = serde_json::from_str::<Rules>(r#"{"allow":["a b"]}"#).unwrap_err();
    assert!(error.to_string().contains("host name"), "{error}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}|[a-z*.:\\[\\]/0-9]{0,40}") {
        if let Ok(rule) = text.parse::<Rule>() {
            let canonical = rule.to_string();
            proptest::prop_assert_eq!(canonical.parse::<Rule>().unwrap(), rule);
        }
    }
}
