//! Quantities for people: a few digits and a unit.

/// A number of bytes, in the units that options take: powers of 1024, as `256M`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    match count {
        1 => return "1 byte".to_owned(),
        0..1024 => return format!("{count} bytes"),
        _ => {}
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // What would round to 1024.0 belongs to the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match value.fract() == 0.0 {
        true => format!("{value}{}", UNITS[unit]),
        false => format!("{value:.1}{}", UNITS[unit]),
    }
}

/// How often something happened.
pub fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        _ => format!("{count} times"),
    }
}

/// A time.
pub fn milliseconds(ms: f64) -> String {
    match ms {
        _ if ms < 1.0 => format!("{ms:.2} ms"),
        _ if ms < 1000.0 => format!("{ms:.1} ms"),
        _ => format!("{:.2} s", ms / 1000.0),
    }
}

/// A limit in its unit.
pub fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => bytes(value as u64),
        "ms" => milliseconds(value),
        "count" => format!("{value}"),
        "cpus" if value == 1.0 => "1 cpu".to_owned(),
        _ => format!("{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_short() {
        for (count, shown) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1K"),
            (8123, "7.9K"),
            (1 << 20, "1M"),
            ((1 << 20) - 1, "1.0M"),
            (268_435_456, "256M"),
            (u64::MAX, "16384P"),
        ] {
            assert_eq!(bytes(count), shown);
        }
        for (ms, shown) in [(0.034, "0.03 ms"), (34.12, "34.1 ms"), (2000.0, "2.00 s")] {
            assert_eq!(milliseconds(ms), shown);
        }
        assert_eq!(in_unit(64.0, "count"), "64");
        assert_eq!(in_unit(1.0, "cpus"), "1 cpu");
        assert_eq!(in_unit(0.5, "cpus"), "0.5 cpus");
    }
}
