//! Clients as they are, without settings for any proxy.

use std::fs;
use std::process::Command;

use crate::Test;
use crate::cell::{Cell, Ended};
use crate::outside::{Outside, program};

pub(crate) const TESTS: &[Test] = &[
    ("clients/python-urllib", python_urllib),
    ("clients/python-requests", python_requests),
    ("clients/python-httpx", python_httpx),
    ("clients/python-aiohttp", python_aiohttp),
    ("clients/node-http", node),
    ("clients/node-fetch", node_fetch),
    ("clients/java", java),
    ("clients/r", r),
    ("clients/go", go),
    ("clients/curl", curl),
    ("clients/git", git),
    ("clients/raw-tcp", raw_tcp),
    ("clients/proxies", proxies),
];

/// Names with addresses of both families and of one, without and with TLS.
const ALLOWED: [&str; 6] = [
    "http://web.example/",
    "http://four.example/",
    "http://six.example/",
    "https://web.example/",
    "https://four.example/",
    "https://six.example/",
];

/// A name that no rule allows.
const FORBIDDEN: &str = "http://other.example/";

/// Where the authority's certificate is inside.
const AUTHORITY: &str = "/tests-ca.pem";

/// A cell that may reach the web, and trusts its authority.
fn web(outside: &Outside, cell: Cell) -> Cell {
    let cell = cell.ro(&outside.authority(), AUTHORITY);
    let variables = [
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
    ];
    let trust = |cell: Cell, name: &str| cell.option(&["--env", &format!("{name}={AUTHORITY}")]);
    variables.into_iter().fold(cell, trust)
}

const WEB: [&str; 3] = ["web.example", "four.example", "six.example"];

/// A client that prints `hello …` for each allowed address, and raises for one that is not.
fn library(language: &str, rootfs: &str, fetch: &str, call: impl Fn(&str) -> String) {
    let outside = Outside::with_web();
    let code = |urls: &[&str]| {
        let calls: Vec<String> = urls.iter().map(|url| call(url)).collect();
        fetch.replace("CALLS", &calls.join("\n"))
    };
    let good = Cell::code(language, rootfs, &code(&ALLOWED));
    let ended = web(&outside, good).allow(&WEB).run().ok();
    assert_greeted(&ended);
    // The same host answers when nothing is in the way.
    let bad = web(&outside, Cell::code(language, rootfs, &code(&[FORBIDDEN])));
    let live = bad.clone().on_the_hosts_network().run().ok();
    assert_eq!(live.lines("hello").len(), 1, "{live:?}");
    assert_explained(&bad.allow(&WEB).run());
    // Nobody outside was asked: the only question is the host network's.
    let asked = outside.asked.lock().expect("the log");
    let others = asked.iter().filter(|name| *name == "other.example").count();
    assert_eq!(others, 1, "{asked:?}");
}

#[track_caller]
fn assert_greeted(ended: &Ended) {
    assert_eq!(ended.lines("hello").len(), ALLOWED.len(), "{ended:?}");
    let allowed = ended.connections().iter();
    let allowed = allowed.filter(|connection| connection["verdict"] == "allowed");
    assert_eq!(allowed.count(), ALLOWED.len(), "{ended:?}");
    for (host, family) in [
        ("four.example", "93.184.0.10"),
        ("six.example", "2600:1234::10"),
    ] {
        let mut of = ended.connections().iter().filter(|it| it["host"] == host);
        assert!(
            of.all(|connection| connection["address"] == family),
            "{ended:?}"
        );
    }
}

/// The program saw an error, and the record says why and what would allow it.
#[track_caller]
fn assert_explained(ended: &Ended) {
    assert_ne!(ended.outcome(), "ok", "{ended:?}");
    assert!(ended.lines("hello").is_empty(), "{ended:?}");
    ended.has_refused("other.example no rule allows this host");
    let context = ended.context();
    let way_out = "--net allow=other.example would allow it";
    assert!(context.contains(way_out), "{context}");
}

fn python_urllib() {
    let fetch = "import urllib.request\ndef get(url): print(urllib.request.urlopen(url).read().decode(), end='')\nCALLS";
    library("python", "host", fetch, |url| format!("get('{url}')"));
}

fn python_requests() {
    let fetch = "import requests\nCALLS";
    library("python", "python-data", fetch, |url| {
        format!("print(requests.get('{url}').text, end='')")
    });
}

fn python_httpx() {
    let fetch = "import httpx\nCALLS";
    library("python", "python-data", fetch, |url| {
        format!("print(httpx.get('{url}').text, end='')")
    });
}

fn python_aiohttp() {
    let fetch = "import aiohttp, asyncio
async def get(url):
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        print(await answer.text(), end='')
CALLS";
    library("python", "python-data", fetch, |url| {
        format!("asyncio.run(get('{url}'))")
    });
}

fn node() {
    let fetch = "const http = require('http'), https = require('https');
const get = url => new Promise((done, failed) => (url.startsWith('https') ? https : http)
    .get(url, {agent: false}, answer => answer.on('data', data => process.stdout.write(data)).on('end', done))
    .on('error', failed));
(async () => {
CALLS
})().catch(error => { console.error(error); process.exit(1); })";
    library("javascript", "node", fetch, |url| {
        format!("await get('{url}');")
    });
}

fn node_fetch() {
    let fetch = "(async () => {
CALLS
})().catch(error => { console.error(error); process.exit(1); })";
    library("javascript", "node", fetch, |url| {
        format!("process.stdout.write(await (await fetch('{url}')).text());")
    });
}

fn java() {
    let fetch = r#"
import java.io.*; import java.net.*; import java.net.http.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
public class Main {
  static HttpClient client() throws Exception {
    var store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null);
    try (var file = new FileInputStream("/tests-ca.pem")) {
      store.setCertificateEntry("tests", CertificateFactory.getInstance("X.509").generateCertificate(file));
    }
    var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    var context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return HttpClient.newBuilder().sslContext(context).build();
  }
  static void get(String url) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(url)).build();
    System.out.print(client().send(request, HttpResponse.BodyHandlers.ofString()).body());
  }
  public static void main(String[] words) throws Exception {
CALLS
  }
}
Main.main(new String[0]);"#;
    library("java", "java", fetch, |url| format!("get(\"{url}\");"));
}

fn r() {
    let fetch = "get <- function(url) { file <- tempfile(); download.file(url, file, quiet = TRUE); cat(readLines(file), sep = '\\n') }\nCALLS";
    library("r", "r", fetch, |url| format!("get('{url}')"));
}

fn go() {
    let outside = Outside::with_web();
    let code = r#"package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	for _, url := range os.Args[1:] {
		answer, err := http.Get(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		body, _ := io.ReadAll(answer.Body)
		fmt.Print(string(body))
	}
}
"#;
    let (source, client) = (
        outside.path().join("main.go"),
        outside.path().join("client"),
    );
    fs::write(&source, code).expect("the code");
    let built = Command::new(program("go"))
        .args(["build", "-o"])
        .args([&client, &source])
        .env("GOCACHE", outside.path().join("cache"))
        .env("GO111MODULE", "off")
        .status()
        .expect("start go");
    assert!(built.success(), "go build");
    let call = |urls: &[&str]| {
        let words = [&["/client"], urls].concat();
        web(&outside, Cell::exec(&words)).ro(&client, "/client")
    };
    let ended = call(&ALLOWED).allow(&WEB).run().ok();
    assert_greeted(&ended);
    let live = call(&[FORBIDDEN]).on_the_hosts_network().run().ok();
    assert_eq!(live.lines("hello").len(), 1, "{live:?}");
    assert_explained(&call(&[FORBIDDEN]).allow(&WEB).run());
}

fn curl() {
    let outside = Outside::with_web();
    let curl = program("curl");
    let good = [&[&*curl, "-sS"], &ALLOWED[..]].concat();
    let ended = web(&outside, Cell::exec(&good)).allow(&WEB).run().ok();
    assert_eq!(ended.lines("hello").len(), ALLOWED.len(), "{ended:?}");
    let bad = web(&outside, Cell::exec(&[&curl, "-sS", FORBIDDEN]));
    let live = bad.clone().on_the_hosts_network().run().ok();
    assert_eq!(live.lines("hello").len(), 1);
    let ended = bad.allow(&WEB).run();
    assert_explained(&ended);
    // 6: it could not resolve the host.
    assert_eq!(ended.0["exit_code"], 6, "{ended:?}");
}

fn git() {
    let outside = Outside::with_web();
    let git = program("git");
    let source = outside.path().join("source");
    fs::create_dir(&source).expect("a directory");
    let commands = [
        "init -q .",
        "-c user.name=t -c user.email=t@example commit -q --allow-empty -m one",
        "clone -q --bare . ../tests.git",
    ];
    for words in commands {
        let done = Command::new(&git)
            .args(words.split(' '))
            .current_dir(&source)
            .status()
            .expect("start git");
        assert!(done.success(), "git {words}");
    }
    let clone = |host: &str| {
        let url = format!("https://{host}/git/tests.git");
        web(&outside, Cell::exec(&[&git, "clone", &url, "/tmp/clone"]))
    };
    let ended = clone("web.example").allow(&WEB).run().ok();
    assert!(ended.connections()[0]["received_bytes"].as_u64() > Some(0));
    clone("other.example").on_the_hosts_network().run().ok();
    assert_explained(&clone("other.example").allow(&WEB).run());
}

fn raw_tcp() {
    let outside = Outside::new();
    let talk = |host: &str, family: &str| {
        Cell::python(&format!(
            "import socket
for family, *_, address in socket.getaddrinfo('{host}', 7000, socket.{family}, socket.SOCK_STREAM):
    with socket.socket(family) as s:
        s.connect(address)
        s.sendall(b'hello raw\\n')
        print(s.recv(100).decode(), end='')"
        ))
    };
    for family in ["AF_INET", "AF_INET6", "AF_UNSPEC"] {
        let cell = talk("raw.example", family).allow(&["raw.example:7000"]);
        let ended = cell.run().ok();
        let count = if family == "AF_UNSPEC" { 2 } else { 1 };
        assert_eq!(ended.lines("hello raw").len(), count, "{ended:?}");
    }
    // The name on another port: nobody listens there.
    let cell = talk("raw.example", "AF_INET");
    cell.clone().on_the_hosts_network().run().ok();
    let ended = cell.allow(&["raw.example"]).run();
    assert_eq!(
        ended.0["error"]["name"], "ConnectionRefusedError",
        "{ended:?}"
    );
    assert_eq!(ended.0["network"]["totals"]["closed_ports"], 1, "{ended:?}");
    let way_out = "ports that no rule names are closed, and --net allow=HOST:PORT opens one";
    assert!(ended.context().contains(way_out), "{ended:?}");
    assert!(outside.raw[0].load(std::sync::atomic::Ordering::SeqCst) > 0);
}

fn proxies() {
    let outside = Outside::with_web();
    let curl = program("curl");
    for proxy in ["http://127.0.0.1:3128", "socks5h://127.0.0.1:1080"] {
        let call = |urls: &[&str]| {
            let words = [&[&*curl, "-sS", "-p", "-x", proxy], urls].concat();
            web(&outside, Cell::exec(&words))
        };
        let ended = call(&ALLOWED).allow(&WEB).run().ok();
        assert_eq!(ended.lines("hello").len(), ALLOWED.len(), "{ended:?}");
        let via = if proxy.starts_with("socks") {
            "socks5"
        } else {
            "connect"
        };
        assert!(
            ended.connections().iter().all(|it| it["via"] == via),
            "{ended:?}"
        );
        let ended = call(&[FORBIDDEN]).allow(&WEB).run();
        assert_ne!(ended.outcome(), "ok", "{ended:?}");
        ended.has_refused("other.example:80 no rule allows this host");
        let way_out = "--net allow=other.example:80 would allow it";
        assert!(ended.context().contains(way_out), "{}", ended.context());
    }
}
