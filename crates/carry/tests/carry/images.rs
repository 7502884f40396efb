//! Images that someone has changed: none harms the process that reads it, and none gets a
//! sibling more than its own cell gives it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};

use carry::{Failure, Image, Refusal};
use serde_json::{Value, json};

use super::siblings::{memory, siblings, unconfined};
use super::skip::skip;

/// The bytes of an image.
fn bytes(image: &Image) -> Vec<u8> {
    let mut file = memory();
    image.write_to(&mut file).unwrap();
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn file(bytes: &[u8]) -> File {
    let mut file = memory();
    file.write_all(bytes).unwrap();
    file
}

/// The image with everything but its pages changed.
fn changed(image: &Image, change: impl FnOnce(&mut Value)) -> Result<Image, Refusal> {
    let bytes = bytes(image);
    let length = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) as usize;
    let (pages, rest) = bytes.split_at(bytes.len() - length);
    let mut rest: Value = serde_json::from_slice(rest).unwrap();
    change(&mut rest);
    let rest = rest.to_string();
    let mut whole = [pages, rest.as_bytes()].concat();
    whole[8..16].copy_from_slice(&(rest.len() as u64).to_le_bytes());
    Image::open(file(&whole))
}

#[test]
fn damage_is_found_or_harmless() {
    let Some(mut all) = siblings(1) else { return };
    let image = all.fork().image();
    let whole = bytes(&image);
    assert!(Image::open(file(&whole)).is_ok());
    for length in [0, 1, 15, 16, 4095, 4096, whole.len() / 2, whole.len() - 1] {
        assert!(Image::open(file(&whole[..length])).is_err(), "{length}");
    }
    // Numbers that follow one another without a pattern, the same each time.
    let mut state = 1_u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let length = u64::from_le_bytes(whole[8..16].try_into().unwrap()) as usize;
    let start = whole.len() - length;
    for _ in 0..300 {
        let mut damaged = whole[start..].to_vec();
        for _ in 0..1 + next() % 3 {
            let at = next() % damaged.len();
            damaged[at] = b"0123456789[]{},:\"-"[next() % 18];
        }
        let header = [&whole[..start], &damaged].concat();
        // An error or another image, and no panic.
        let _ = Image::open(file(&header));
    }
    for place in 0..16 {
        let mut damaged = whole.clone();
        damaged[place] ^= 0xff;
        assert!(Image::open(file(&damaged)).is_err(), "header byte {place}");
    }
}

#[test]
fn nonsense_is_refused() {
    let Some(mut all) = siblings(1) else { return };
    let image = all.fork().image();
    let refused = |what: &str, change: &dyn Fn(&mut Value)| {
        let opened = changed(&image, change);
        assert!(opened.is_err(), "{what}");
    };
    refused("pages out of order", &|rest| {
        let content = rest["content"].as_array_mut().unwrap();
        content.reverse();
    });
    refused("pages of no mapping", &|rest| {
        let content = rest["content"].as_array_mut().unwrap();
        let pages = content[0][1].as_u64().unwrap() - content[0][0].as_u64().unwrap();
        content[0] = json!([4096, 4096 + pages]);
    });
    refused("odd addresses", &|rest| rest["content"][0][0] = json!(17));
    refused("more pages than there are", &|rest| {
        rest["inherited"] = json!([[0, u64::MAX - 4095]]);
    });
    refused("mappings out of order", &|rest| {
        rest["mappings"]["list"].as_array_mut().unwrap().reverse();
    });
    refused("an endless mapping", &|rest| {
        rest["mappings"]["list"][0]["end"] = json!(u64::MAX - 4095);
    });
    refused("too many mappings", &|rest| {
        let one = |at: u64| {
            json!({"start": at * 4096, "end": at * 4096 + 4096, "protection": 1,
                   "shared": false, "on_fork": "copied", "source": "anonymous"})
        };
        rest["mappings"]["list"] = (1..100_000).map(one).collect();
        rest["content"] = json!([]);
    });
    refused("a mapping without its name", &|rest| {
        rest["mappings"]["names"] = json!([]);
    });
    refused("no stack", &|rest| {
        let list = rest["mappings"]["list"].as_array_mut().unwrap();
        list.retain(|one| one["source"] != "stack");
        rest["content"] = json!([]);
    });
    refused("few registers", &|rest| {
        rest["registers"] = json!([1, 2, 3])
    });
    refused("a name with a zero", &|rest| {
        rest["directory"] = json!("/a\0b")
    });
    refused("a relative directory", &|rest| {
        rest["directory"] = json!("a")
    });
    refused("signal 65", &|rest| {
        rest["actions"] = json!([[65, [0, 0, 0, 0]]])
    });
    refused("a copy of itself", &|rest| {
        rest["descriptors"]["7"] = json!({"what": {"same": 7}, "flags": 0, "close_on_exec": false});
    });
    refused("a negative descriptor", &|rest| {
        rest["descriptors"]["-7"] = rest["descriptors"]["0"].clone();
    });
}

#[test]
fn wild_registers_end_the_sibling_alone() {
    let Some(mut all) = siblings(3) else { return };
    let a = all.fork();
    let image = a.image();
    // Where the program goes on, its stack and its flags, all at once. The call site must
    // be the sibling's, so only what follows it is wild.
    let wild = changed(&image, |rest| {
        let registers = rest["registers"].as_array_mut().unwrap();
        for place in [0, 1, 2, 3, 4, 5, 6, 12, 19] {
            registers[place] = json!(u64::MAX - 7);
        }
    });
    let b = all.fork();
    b.put(&wild.unwrap(), None).unwrap();
    // Registers that no program can have are not set: the kernel refuses them.
    let kernel = changed(&image, |rest| {
        rest["registers"][17] = json!(0x10); // the kernel's code segment
    });
    let c = all.fork();
    let broken = c.put(&kernel.unwrap(), None);
    assert!(matches!(broken, Err(Failure::Broken(_))), "{broken:?}");
}

#[test]
fn a_layout_without_the_code_ends_the_sibling_alone() {
    let Some(mut all) = siblings(2) else { return };
    let (a, mut b) = all.pair();
    let image = changed(&a.image(), |rest| {
        // Memory in place of every file: the code of the sibling goes while it is used.
        for mapping in rest["mappings"]["list"].as_array_mut().unwrap() {
            if mapping["source"].get("file").is_some() {
                mapping["source"] = json!("anonymous");
            }
        }
    });
    let broken = b.put(&image.unwrap(), None);
    assert!(matches!(broken, Err(Failure::Broken(_))), "{broken:?}");
    // It was killed, not left half changed.
    let start = std::time::Instant::now();
    while nix::sys::signal::kill(b.pid, None).is_ok() {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", b.pid));
        if status.is_ok_and(|status| status.contains(") Z ")) {
            break;
        }
        assert!(start.elapsed().as_secs() < 60, "still there");
    }
    assert!(b.begin_fails_or_is_silent());
}

/// A name in an image leads no further than the sibling itself could go.
#[test]
fn an_image_opens_nothing_that_the_sibling_could_not() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "unchanged").unwrap();
    let path = secret.to_str().unwrap();
    let with_file = |image: &Image| {
        changed(image, |rest| {
            rest["descriptors"]["9"] = json!({
                "what": {"file": {"path": path, "offset": 0}},
                "flags": 2, "close_on_exec": false,
            });
        })
    };
    // Without filter and rules it is opened for writing.
    if let Some(mut free) = unconfined(2) {
        let (a, mut b) = free.pair();
        b.put(&with_file(&a.image()).unwrap(), None).unwrap();
        assert_eq!(b.eval("__import__('os').write(9, b'changed!!')"), "9");
        assert_eq!(std::fs::read(&secret).unwrap(), b"changed!!");
        std::fs::write(&secret, "unchanged").unwrap();
    }
    let Some(mut all) = siblings(2) else { return };
    let (mut a, b) = all.pair();
    if a.eval("open('/proc/self/status').read().count('Landlock')") == "0"
        && a.eval(&format!("__import__('os').open({path:?}, 2) > 0")) == "True"
    {
        return skip("no Landlock");
    }
    let broken = b.put(&with_file(&a.image()).unwrap(), None);
    assert!(
        matches!(
            broken,
            Err(Failure::Broken(Refusal::System(
                "openat",
                nix::errno::Errno::EACCES
            )))
        ),
        "{broken:?}"
    );
    assert_eq!(std::fs::read(&secret).unwrap(), b"unchanged");
}
