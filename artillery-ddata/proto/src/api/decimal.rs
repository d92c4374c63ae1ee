//! Sums of decimal numbers with a fraction, as text. All members compute the same sum.

use crate::types::update::RequestFailure;

/// Digits behind the point.
const DIGITS: usize = 17;
const SCALE: i128 = 10_i128.pow(DIGITS as u32);
/// Numbers below this are added exactly, so that 0.1 and 0.2 make 0.3; larger ones as floats of 64 bits.
const EXACT: f64 = 1e20;
/// The longest number in bytes. No sum is longer.
pub(crate) const MAX_DECIMAL_BYTES: usize = 512;

#[derive(Clone, Copy, Debug)]
enum Decimal {
    /// In units of 10^-17.
    Exact(i128),
    Float(f64),
}

/// Adds a number to the present value of a key; `None` is 0. The sum has at most 17 digits behind the point, no
/// trailing zeros there, and no exponent.
///
/// # Errors
/// [`RequestFailure::NotANumber`] if one of both isn't a number; [`RequestFailure::Overflow`] if the sum isn't finite.
pub fn decimal_sum(before: Option<&[u8]>, by: &[u8]) -> Result<String, RequestFailure> {
    let before = before.map_or(Some(Decimal::Exact(0)), parse).ok_or(RequestFailure::NotANumber)?;
    let by = parse(by).ok_or(RequestFailure::NotANumber)?;
    if let (Decimal::Exact(a), Decimal::Exact(b)) = (before, by) {
        return Ok(exact(a + b));
    }
    let sum = before.float() + by.float();
    if sum.is_finite() { Ok(trimmed(&format!("{sum:.DIGITS$}"))) } else { Err(RequestFailure::Overflow) }
}

impl Decimal {
    fn float(self) -> f64 {
        match self {
            Self::Exact(number) => number as f64 / SCALE as f64,
            Self::Float(number) => number,
        }
    }
}

fn parse(text: &[u8]) -> Option<Decimal> {
    if text.len() > MAX_DECIMAL_BYTES {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let float: f64 = text.parse().ok()?;
    if float.is_nan() {
        None
    } else if float.abs() < EXACT {
        Some(Decimal::Exact(scaled(text)?))
    } else {
        Some(Decimal::Float(float))
    }
}

/// A number below [`EXACT`] in units of 10^-17, rounded.
fn scaled(text: &str) -> Option<i128> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: Vec<u8> =
        [whole, fraction].concat().bytes().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect();
    let first = digits.iter().position(|digit| *digit != 0);
    // An exponent beyond 64 bits belongs to a number that is too small to be seen.
    let (Some(first), Ok(exponent)) = (first, exponent.parse::<i64>()) else { return Some(0) };
    let shift = exponent.saturating_sub(fraction.len() as i64).saturating_add(DIGITS as i64);
    // The digits that remain, including zeros that the exponent adds.
    let Ok(kept) = usize::try_from(shift.saturating_add(digits.len() as i64)) else { return Some(0) };
    let digit = |at: usize| i128::from(digits.get(at).copied().unwrap_or(0));
    let number = (first..kept).try_fold(0_i128, |number, at| number.checked_mul(10)?.checked_add(digit(at)))?;
    let number = if digit(kept) >= 5 { number + 1 } else { number };
    Some(if text.starts_with('-') { -number } else { number })
}

fn exact(number: i128) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let (whole, fraction) = (number.unsigned_abs() / SCALE as u128, number.unsigned_abs() % SCALE as u128);
    trimmed(&format!("{sign}{whole}.{fraction:0DIGITS$}"))
}

/// The text without zeros at the end of its fraction.
fn trimmed(text: &str) -> String {
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(before: &str, by: &str) -> String {
        decimal_sum(Some(before.as_bytes()), by.as_bytes()).unwrap_or_else(|failure| format!("{failure:?}"))
    }

    #[test]
    fn sums_are_exact_and_short() {
        let cases = [
            ("10.50", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("5.0e3", "200", "5200"),
            ("3", "1.5e-1", "3.15"),
            ("-1", "1", "0"),
            ("-0", "-0.0", "0"),
            ("1", "-0.00000000000000001", "0.99999999999999999"),
            ("0", "0.000000000000000005", "0.00000000000000001"),
            ("0", "0.000000000000000004", "0"),
            ("0", "1e-999999999999999999999999", "0"),
            ("0e999999999999", "+.5", "0.5"),
            ("5.", "100", "105"),
            ("99999999999999999999", "1", "100000000000000000000"),
            ("-90000000000000000000", "-90000000000000000000.5", "-180000000000000000000.5"),
            ("1e22", "1", "10000000000000000000000"),
            ("1e20", "-1e20", "0"),
            ("-1e20", "1e20", "0"),
            ("1e308", "1e308", "Overflow"),
            ("0", "inf", "Overflow"),
            ("0", "-Infinity", "Overflow"),
            ("1e999", "0", "Overflow"),
        ];
        for (before, by, wanted) in cases {
            assert_eq!(sum(before, by), wanted, "{before} and {by}");
        }
        assert_eq!(decimal_sum(None, b"1.50"), Ok("1.5".to_owned()));
        let largest = decimal_sum(None, f64::MAX.to_string().as_bytes()).unwrap();
        assert!(largest.len() <= MAX_DECIMAL_BYTES && sum(&largest, "0") == largest, "{largest}");
    }

    #[test]
    fn other_texts_are_no_numbers() {
        for text in ["", " 1", "1 ", "a", "nan", "-NaN", "1e", "--1", "+-1", "0x10", "1_0", "1.2.3", "."] {
            assert_eq!(sum(text, "1"), "NotANumber", "{text:?}");
            assert_eq!(sum("1", text), "NotANumber", "{text:?}");
        }
        assert_eq!(sum(&"1".repeat(MAX_DECIMAL_BYTES + 1), "1"), "NotANumber");
    }
}
