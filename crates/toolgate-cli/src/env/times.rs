//! Times and durations as people read and write them.

use std::time::Duration;

use toolgate::value::{Clock, SystemClock, Timestamp};

/// Returns the current time.
pub(crate) fn current_time() -> Timestamp {
    SystemClock::new().now()
}

/// Formats a time in the zone of this machine, to the minute, with the zone.
pub(crate) fn format_time(at: Timestamp) -> String {
    format_local(at, "%Y-%m-%d %H:%M %Z")
}

/// Formats a time for a column whose head names the zone ([`zoned_head`]).
pub(crate) fn format_column_time(at: Timestamp) -> String {
    format_local(at, "%Y-%m-%d %H:%M")
}

/// Returns the head of a column of times, with the zone of this machine.
pub(crate) fn zoned_head(name: &str) -> String {
    format!("{name} ({})", format_local(current_time(), "%Z"))
}

/// Formats how long it is until a time, in the largest unit that says enough.
pub(crate) fn format_time_left(until: Timestamp, now: Timestamp) -> String {
    if until <= now {
        return "expired".to_owned();
    }
    let seconds = until.since(now).as_secs();
    match seconds {
        0..120 => format!("in {seconds} s"),
        120..7_200 => format!("in {} min", seconds.div_ceil(60)),
        7_200..172_800 => format!("in {} h", seconds.div_ceil(3_600)),
        _ => format!("in {} days", seconds.div_ceil(86_400)),
    }
}

fn format_local(at: Timestamp, format: &str) -> String {
    match jiff::Timestamp::from_microsecond(at.as_micros()) {
        Ok(time) => time
            .to_zoned(jiff::tz::TimeZone::system())
            .strftime(format)
            .to_string(),
        Err(_) => at.to_string(),
    }
}

/// Parses a duration such as `30m`, `12h` or `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 30m, 12h or 7d".to_owned();
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

/// Parses a time: `2026-11-16`, `2026-11-16 10:30` or RFC 3339. Without a zone, the local one is
/// used.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.trim().parse() {
        return Ok(at);
    }
    let day = text.trim().parse::<jiff::civil::DateTime>().or_else(|_| {
        let day: Result<jiff::civil::Date, _> = text.trim().parse();
        day.map(|day| day.at(0, 0, 0, 0))
    });
    let zoned = day.and_then(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    let micros = zoned.map(|zoned| zoned.timestamp().as_microsecond());
    micros
        .map(Timestamp::from_micros)
        .map_err(|_| "expected a time such as 2026-11-16, or 2026-11-16T10:30:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_nonsense_is_rejected() {
        assert_eq!(parse_duration("30m"), Ok(Duration::from_secs(1_800)));
        assert_eq!(parse_duration("2w"), Ok(Duration::from_secs(1_209_600)));
        for wrong in [
            "",
            "h",
            "5",
            "5 h",
            "-1h",
            "1y",
            "99999999999999999999d",
            "999999999999999999w",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_time_left_is_given_in_one_unit() {
        let left = |seconds: u64| {
            let until = Timestamp::EPOCH.plus(Duration::from_secs(seconds));
            format_time_left(until, Timestamp::EPOCH)
        };
        assert_eq!(left(0), "expired");
        assert_eq!(left(90), "in 90 s");
        assert_eq!(left(1_800), "in 30 min");
        assert_eq!(left(8 * 3_600 - 5), "in 8 h");
        assert_eq!(left(7 * 86_400), "in 7 days");
    }

    #[test]
    fn times_are_parsed_with_and_without_a_zone() {
        assert_eq!(
            parse_time("2026-11-16T10:30:00Z").map(Timestamp::as_micros),
            Ok(1_794_825_000_000_000)
        );
        assert_eq!(parse_time("2026-11-16"), parse_time("2026-11-16T00:00:00"));
        assert!(parse_time("2026-11-16 10:30").is_ok());
        for wrong in ["", "yesterday", "2026-13-01", "10:30"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
