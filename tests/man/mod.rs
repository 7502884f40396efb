//! The manual pages in man/ are those of the declarations.
//!
//! `CELLBLOCK_BLESS=1 cargo test --test product man::` rewrites them.

mod commands;
mod prose;
mod reference;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap_mangen::roff::Roff;

use prose::{paragraphs, words};

/// Every page: its file's name and its text.
fn pages() -> BTreeMap<String, String> {
    let mut pages = all_pages();
    for text in pages.values_mut() {
        // The writer loses the quotes of the empty date, which shifts the rest.
        *text = text.replacen("  \"cellblock", " \"\" \"cellblock", 1);
    }
    pages
}

fn all_pages() -> BTreeMap<String, String> {
    let mut pages = commands::pages();
    pages.insert("cellblock-recipe.5".to_owned(), recipe_format());
    pages.insert("cellblock-policy.5".to_owned(), policy_format());
    pages.insert("cellblock-request.5".to_owned(), request_format());
    pages.insert("cellblock-record.5".to_owned(), record_format());
    pages.insert("cellblock-events.5".to_owned(), events_format());
    pages
}

fn title(name: &str, section: &str) -> Roff {
    let mut roff = Roff::new();
    let source = concat!("cellblock ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [name, section, "", source, "cellblock"]);
    roff
}

fn policy_format() -> String {
    let mut roff = title("cellblock-policy", "5");
    roff.control("SH", ["NAME"]);
    words(
        &mut roff,
        "cellblock-policy - profiles and spec files of cellblock",
    );
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, include_str!("policy.txt"));
    let schema = schemars::schema_for!(spec::Partial).to_value();
    let default = spec::profiles::find_built_in("default").unwrap().source;
    let default: serde_json::Value = toml::from_str(default).unwrap();
    let style = reference::Style {
        root: "TOP LEVEL",
        defaults: Some(&default),
        own_words: &[("RawText", "text, or {base64 = \"…\"}")],
        sections: &[("limits.shm, limits.tmp, limits.workspace", "limits.shm")],
    };
    reference::sections(&mut roff, &schema, &style);
    roff.control("SH", ["EXAMPLE"]);
    paragraphs(&mut roff, include_str!("policy-example.txt"));
    roff.control("SH", ["SEE ALSO"]);
    words(
        &mut roff,
        "cellblock(1), cellblock-policy(1), cellblock-run(1), cellblock-exec(1), cellblock-record(5)",
    );
    roff.render()
}

fn request_format() -> String {
    let mut roff = title("cellblock-request", "5");
    roff.control("SH", ["NAME"]);
    words(
        &mut roff,
        "cellblock-request - what somebody else may ask cellblock to run",
    );
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, include_str!("request.txt"));
    let schema = spec::RemoteRequest::json_schema_document().to_value();
    let style = reference::Style {
        root: "FIELDS",
        defaults: None,
        own_words: &[
            ("RawText", "text, or {\"base64\": …}"),
            ("PartialLimits", "table, as limits of cellblock-policy(5)"),
        ],
        sections: &[],
    };
    reference::sections(&mut roff, &schema, &style);
    roff.control("SH", ["EXAMPLE"]);
    paragraphs(&mut roff, include_str!("request-example.txt"));
    roff.control("SH", ["SEE ALSO"]);
    words(
        &mut roff,
        "cellblock(1), cellblock-run(1), cellblock-exec(1), cellblock-policy(5), cellblock-record(5)",
    );
    roff.render()
}

fn recipe_format() -> String {
    let mut roff = title("cellblock-recipe", "5");
    roff.control("SH", ["NAME"]);
    words(
        &mut roff,
        "cellblock-recipe - what prepared root filesystems are built from",
    );
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, include_str!("recipe.txt"));
    let schema = schemars::schema_for!(rootfs_builder::Recipe).to_value();
    let style = reference::Style {
        root: "TOP LEVEL",
        defaults: Some(&serde_json::Value::Null),
        own_words: &[],
        sections: &[],
    };
    reference::sections(&mut roff, &schema, &style);
    roff.control("SH", ["LOCK FILE"]);
    paragraphs(&mut roff, include_str!("recipe-lock.txt"));
    roff.control("SH", ["EXAMPLE"]);
    paragraphs(&mut roff, include_str!("recipe-example.txt"));
    roff.control("SH", ["SEE ALSO"]);
    words(
        &mut roff,
        "cellblock(1), cellblock-rootfs(1), cellblock-rootfs-build(1), cellblock-rootfs-add(1)",
    );
    roff.render()
}

fn record_format() -> String {
    let mut roff = title("cellblock-record", "5");
    roff.control("SH", ["NAME"]);
    words(
        &mut roff,
        "cellblock-record - what cellblock reports of an execution",
    );
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, include_str!("record.txt"));
    let schema = schemars::schema_for!(record::Record).to_value();
    let style = reference::Style {
        root: "THE RECORD",
        defaults: None,
        own_words: &[("RawText", "text, or {\"text\": …, \"base64\": …}")],
        sections: &[],
    };
    reference::sections(&mut roff, &schema, &style);
    roff.control("SH", ["SEE ALSO"]);
    words(
        &mut roff,
        "cellblock(1), cellblock-run(1), cellblock-exec(1), cellblock-show(1), cellblock-events(5), cellblock-policy(5)",
    );
    roff.render()
}

fn events_format() -> String {
    let mut roff = title("cellblock-events", "5");
    roff.control("SH", ["NAME"]);
    words(
        &mut roff,
        "cellblock-events - what cellblock tells of an execution meanwhile",
    );
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, include_str!("events.txt"));
    let schema = schemars::schema_for!(record::event::Event).to_value();
    let style = reference::Style {
        root: "EVERY EVENT",
        defaults: None,
        own_words: &[
            ("RawText", "text, or {\"text\": …, \"base64\": …}"),
            ("ResultItem", "table, as in results of cellblock-record(5)"),
            ("CodeError", "table, as error of cellblock-record(5)"),
            ("FileChange", "table, as in files of cellblock-record(5)"),
            ("Record", "table, see cellblock-record(5)"),
        ],
        sections: &[],
    };
    reference::sections(&mut roff, &schema, &style);
    for kind in schema["oneOf"].as_array().unwrap() {
        let mut kind = kind.clone();
        // Fields that several kinds have, or many, are a type of their own.
        if let Some(path) = kind["$ref"].as_str() {
            let name = path.rsplit('/').next().unwrap();
            let mut fields = schema["$defs"][name]["properties"].clone();
            fields["event"] = kind["properties"]["event"].clone();
            kind["properties"] = fields;
        }
        let fields = kind["properties"].as_object_mut().unwrap();
        let name = fields.remove("event").unwrap()["const"].take();
        reference::section(&mut roff, name.as_str().unwrap(), &kind, &schema, &style);
    }
    roff.control("SH", ["EXAMPLES"]);
    paragraphs(&mut roff, include_str!("events-example.txt"));
    roff.control("SH", ["SEE ALSO"]);
    words(
        &mut roff,
        "cellblock(1), cellblock-run(1), cellblock-exec(1), cellblock-record(5)",
    );
    roff.render()
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("man")
}

#[test]
fn pages_are_those_of_the_declarations() {
    let wanted = pages();
    if std::env::var_os("CELLBLOCK_BLESS").is_some() {
        for entry in fs::read_dir(folder()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (name, text) in &wanted {
            fs::write(folder().join(name), text).unwrap();
        }
        return;
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        found.insert(name, fs::read_to_string(entry.path()).unwrap());
    }
    let names = |pages: &BTreeMap<String, String>| pages.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&found),
        names(&wanted),
        "CELLBLOCK_BLESS=1 rewrites man/"
    );
    for (name, text) in &wanted {
        let differs = found[name].lines().zip(text.lines()).find(|(a, b)| a != b);
        assert!(
            found[name] == *text,
            "man/{name} is not what the declarations say (first difference: {differs:?}); \
             CELLBLOCK_BLESS=1 cargo test --test product man:: rewrites it"
        );
    }
}

#[test]
fn pages_refer_to_pages_that_exist() {
    let pages = pages();
    for (name, text) in &pages {
        let plain = text
            .replace("\\-", "-")
            .replace("\\fB", "")
            .replace("\\fR", "");
        for (at, _) in plain.match_indices("cellblock") {
            let rest = &plain[at..];
            let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '-'));
            let Some((page, behind)) = end.map(|end| rest.split_at(end)) else {
                continue;
            };
            if let Some(section) = behind.strip_prefix('(').and_then(|b| b.chars().next()) {
                let wanted = format!("{page}.{section}");
                assert!(pages.contains_key(&wanted), "{name} refers to {wanted}");
            }
        }
    }
}
