//! Compressed and sparse archives.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

#[test]
fn compressed_archives_are_told_by_their_content() {
    let plain = archive(&[file("a", "text"), file("b", &"long ".repeat(99_999))]);
    let part = |part: &[u8]| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(part).unwrap();
        gzip.finish().unwrap()
    };
    let gzip = part(&plain);
    let zstd = ruzstd::encoding::compress_to_vec(
        plain.as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    // A note for other programs between two frames.
    let half = plain.len() / 2;
    let frame = |part: &[u8]| {
        ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest)
    };
    let note = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let frames = [frame(&plain[..half]), note.clone(), frame(&plain[half..])].concat();
    // As pzstd writes it, whose first frame has the length of the second.
    let noted = [note, zstd.clone()].concat();
    let members = [part(&plain[..half]), part(&plain[half..])].concat();
    let padded = |bytes: &[u8]| [bytes, &[0; 200_000]].concat();
    for bytes in [
        &plain,
        &gzip,
        &zstd,
        &frames,
        &noted,
        &members,
        &padded(&gzip),
        &padded(&members),
        &padded(&plain),
    ] {
        let mut read = Vec::new();
        let whole = decompress(bytes.as_slice()).unwrap().read_to_end(&mut read);
        assert_eq!(whole.map_err(|e| e.to_string()), Ok(read.len()));
        assert!(read.starts_with(&plain));
        let place = place();
        place.unpack_with(bytes, Options::default()).unwrap();
        assert_eq!(place.text("a"), "text");
        assert_eq!(place.text("b").len(), 5 * 99_999);
    }
    for (bytes, wanted) in [
        (b"\xfd7zXZ\0abc".as_slice(), "it is xz"),
        (b"PK\x03\x04abc", "it is zip"),
        (&gzip[..gzip.len() / 2], "cannot be read"),
        (&zstd[..zstd.len() / 2], "cannot be read"),
        (&plain[..plain.len() / 2], "ends too early"),
        (&[b'x'; 2000], "cannot be read"),
        (&[&members[..], b"junk"].concat(), "cannot be read"),
    ] {
        let mut content = decompress(bytes).map_err(|e| damaged(Step::Store, &e));
        let read = content
            .as_mut()
            .map(|content| io::copy(content, &mut io::sink()));
        let error = match read {
            Ok(Err(e)) => damaged(Step::Store, &e),
            _ => place().unpack_with(bytes, Options::default()).unwrap_err(),
        };
        assert!(error.message.contains(wanted), "{error}");
        assert!(error.hint.is_some());
    }
}

#[test]
fn what_only_grows_is_refused() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let mut zeros = header(&file("zeros", ""));
    zeros.set_size(80 << 20);
    zeros.set_cksum();
    gzip.write_all(zeros.as_bytes()).unwrap();
    let piece = vec![0; 1 << 20];
    for _ in 0..80 {
        gzip.write_all(&piece).unwrap();
    }
    let bomb = gzip.finish().unwrap();
    let place = place();
    let error = place.unpack_with(&bomb, Options::default()).unwrap_err();
    assert!(error.message.contains("300 times its size"), "{error}");
    let size = fs::metadata(place.at("zeros")).unwrap().blocks() * 512;
    assert!(size < 1 << 20, "zeros take no room: {size}");
}

#[test]
fn holes_stay_holes() {
    let mut old = Header::new_gnu();
    old.set_entry_type(EntryType::GNUSparse);
    old.set_mode(0o644);
    old.set_size(512);
    {
        let gnu = old.as_gnu_mut().unwrap();
        gnu.name[..3].copy_from_slice(b"old");
        gnu.sparse[0].offset[..12].copy_from_slice(b"00010000000\0");
        gnu.sparse[0].numbytes[..12].copy_from_slice(b"00000001000\0");
        gnu.realsize[..12].copy_from_slice(b"00010001000\0");
    }
    old.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&old, [b'x'; 512].as_slice()).unwrap();
    // The form of POSIX archives: the map is the first block of the data.
    let mut map = b"1\n2097152\n3\n".to_vec();
    map.resize(512, 0);
    map.extend(b"yyy");
    builder
        .append_pax_extensions([
            ("GNU.sparse.major", b"1".as_slice()),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"new"),
            ("GNU.sparse.realsize", b"3145728"),
        ])
        .unwrap();
    let mut new = file("GNUSparseFile.0/new", "");
    new.content = map;
    builder
        .append(&header(&new), new.content.as_slice())
        .unwrap();
    let place = place();
    let bytes = builder.into_inner().unwrap();
    let report = place.unpack_with(&bytes, Options::default()).unwrap();
    assert_eq!(reasons(&report), [""; 0]);
    for (name, size, at, byte) in [
        ("old", 0o10001000, 0o10000000, b'x'),
        ("new", 3 << 20, 2 << 20, b'y'),
    ] {
        let found = fs::read(place.at(name)).unwrap();
        assert_eq!(found.len(), size, "{name}");
        assert!(found[..at].iter().all(|b| *b == 0), "{name}");
        assert_eq!(found[at], byte, "{name}");
        let taken = fs::metadata(place.at(name)).unwrap().blocks() * 512;
        assert!(taken <= 256 << 10, "{name} takes {taken}");
    }
}
