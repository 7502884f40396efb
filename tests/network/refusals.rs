//! What is refused, each first shown to be reached where nothing is in the way.

use crate::Test;
use crate::cell::Cell;
use crate::outside::Outside;

pub(crate) const TESTS: &[Test] = &[("refusals/private-addresses", private_addresses)];

fn private_addresses() {
    let outside = Outside::with_web();
    for name in ["inner.example", "metadata.example"] {
        let code = format!(
            "import urllib.request; print(urllib.request.urlopen('http://{name}/').read().decode())"
        );
        let cell = Cell::python(&code);
        let live = cell.clone().on_the_hosts_network().run().ok();
        assert_eq!(live.lines("hello").len(), 1, "{live:?}");
        let ended = cell.allow(&[name]).run();
        assert_ne!(ended.outcome(), "ok");
        ended.has_refused(&format!(
            "{name}:80 the name resolves to an address that is private, local or reserved"
        ));
    }
    drop(outside);
}
