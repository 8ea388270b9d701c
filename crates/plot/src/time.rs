use std::time::Duration;

/// A time with three digits and its unit: `640 ns`, `35.2 µs`, `1.24 ms`, `102 s`.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(leasehold_plot::short(Duration::from_nanos(1_239_000)), "1.24 ms");
/// ```
pub fn short(time: Duration) -> String {
    let nanos = time.as_secs_f64() * 1e9;
    let units = [("s", 1e9), ("ms", 1e6), ("µs", 1e3)];
    // What would be rounded to a thousand belongs to the next unit.
    let unit = units.into_iter().find(|(_, size)| nanos >= size * 0.9995);
    let Some((unit, size)) = unit else { return format!("{nanos:.0} ns") };
    let number = nanos / size;
    let digits = match number {
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        let cases = [
            (0, "0 ns"),
            (640, "640 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (35_210, "35.2 µs"),
            (999_700, "1.00 ms"),
            (123_456_789, "123 ms"),
            (102_000_000_000, "102 s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(short(Duration::from_nanos(nanos)), text);
        }
    }
}
