//! The page at `/` of a server, used in a real browser.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::browser::Browser;
use super::chromium::{Chromium, Page};

const TOKEN: &str = "0123456789abcdef";
/// A server with a token.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cellblock"))
            .args(["serve", "--rootfs", "host", "--http", "127.0.0.1:0"])
            .env("CELLBLOCK_HTTP_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let url = line
            .trim()
            .strip_prefix("cellblock: serving ")
            .unwrap_or_else(|| panic!("{line}"));
        let url = url.to_owned();
        // The server may print more, and must not wait for a reader.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page in a browser of its own.
struct Tab {
    chromium: Chromium,
    page: Page,
}

impl Tab {
    fn open(browser: &Browser, url: &str) -> Self {
        let mut chromium = Chromium::start(browser.program());
        let page = chromium.open(url);
        Self { chromium, page }
    }

    fn value(&mut self, expression: &str) -> Value {
        self.chromium.value(&self.page, expression)
    }

    fn until(&mut self, expression: &str) {
        self.chromium.until(&self.page, expression);
    }

    fn text(&mut self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById({id:?}).innerText"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// A text with one space for each gap.
    fn words(&mut self, id: &str) -> String {
        let text = self.text(id);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Runs code in the console, and waits for its end.
    fn run(&mut self, code: &str) {
        let before = self.value("runs.length").as_u64().unwrap();
        self.value(&format!(
            "at('code').value = {}; at('run').click()",
            json!(code)
        ));
        self.until(&format!("runs.length > {before} && !going"));
    }
}

/// The tests of the page, one after the other: a browser takes its time to start.
#[test]
fn the_page_of_a_server_works_in_a_browser() {
    let Some(browser) = Browser::find("the_page_of_a_server_works_in_a_browser") else {
        return;
    };
    let server = Server::start();
    let mut page = Tab::open(&browser, &server.url);

    // Without the token, only the form for it is shown.
    page.until("!at('login').hidden");
    assert_eq!(page.text("summary"), "");
    page.value("at('token').value = 'wrong'; at('login').requestSubmit()");
    page.until("at('problem').textContent.includes('token')");
    page.value(&format!(
        "at('token').value = {TOKEN:?}; at('login').requestSubmit()"
    ));
    page.until("at('summary').textContent.startsWith('Up ')");
    page.until("at('problem').textContent === ''");

    // The console shows output, values and errors, and what the policy denied.
    page.run("print('hello')\n6 * 7");
    assert_eq!(page.words("output"), "hello 42");
    assert!(page.text("runs").contains("ok"));
    page.run("import ctypes\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\n1 / 0");
    assert!(page.text("output").contains("ZeroDivisionError"));
    assert!(
        page.text("denied").contains("ptrace"),
        "{}",
        page.text("denied")
    );

    // Hostile output is shown as text. The same script is executed in a page without policy and
    // escaping.
    let attack = "<img src=x onerror='window.taken = 1'><script>window.taken = 1</script>";
    page.run(&format!(
        "print({attack:?})\nclass A:\n def __repr__(self): return {attack:?}\nA()"
    ));
    assert!(
        page.text("output").contains("<img src=x"),
        "{}",
        page.text("output")
    );
    assert_eq!(
        page.value("document.querySelectorAll('#output img, #output script').length"),
        0
    );
    let inject = "const one = document.createElement('script'); one.textContent = 'window.taken = 1'; \
                  document.body.append(one); window.taken === undefined";
    assert_eq!(page.value(inject), true, "the policy lets a script in");
    let bare = page.chromium.open_blank();
    let inject = inject.replace("=== undefined", "=== 1");
    let injected = page.chromium.value(&bare, &inject);
    assert_eq!(injected, true, "the script does nothing anywhere");
    page.chromium.close(&bare);

    // A picture is shown.
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    page.run(&format!(
        "import base64\nclass P:\n def _repr_png_(self): return base64.b64decode({png:?})\nP()"
    ));
    page.until("document.querySelector('#output img')?.naturalWidth === 1");

    // Displays are updated and cleared as in a notebook.
    page.run(
        "from IPython.display import display, clear_output\nh = display(1, display_id='a')\n\
         print('between')\ndisplay(2, display_id='b')\nh.update('<b>new</b>')\n3",
    );
    assert_eq!(page.words("output"), "'<b>new</b>' between 2 3");
    page.run(
        "from IPython.display import clear_output\ndisplay('old')\nprint('printed')\nclear_output()\ndisplay('kept')\n\
         clear_output(wait=True)\ndisplay('last')",
    );
    assert_eq!(page.words("output"), "printed 'last'");

    // A context is made, keeps its variables, and is deleted.
    page.value("at('create').click()");
    page.until("at('where').value.startsWith('in ')");
    page.run("x = 20");
    page.run("x + 1");
    assert_eq!(page.text("output").trim(), "21");
    assert!(page.text("runs").contains("kept"));
    page.until("at('contexts').innerText.includes('idle')");
    page.value("at('contexts').querySelector('button').click()");
    page.until("at('contexts').innerText.includes('No contexts')");

    // An endless run is stopped.
    page.value("at('where').value = 'new python'");
    page.value("at('code').value = 'print(1, flush=True)\\nwhile True: pass'; at('run').click()");
    page.until("at('output').innerText.includes('1')");
    page.value("at('stop').click()");
    page.until("!going && at('output').innerText.includes('stopped')");
    page.until("at('summary').textContent.includes('cells 0 of')");
}
