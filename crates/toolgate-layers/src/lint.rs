//! Finds what is wrong with the order of a stack, by what its layers say they do.
//!
//! The builder refuses a stack whose bands are out of order. The linter looks closer: at layers of one band, at layers
//! that were allowed to stand elsewhere, and at numbers that do not go together.

use std::{fmt, time::Duration};

use serde::Serialize;
use toolgate_core::{AnyLayer, Band, LayerName, LayerTraits};

/// Something about a stack that will go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The rule that was broken.
    pub rule: &'static str,
    /// The layer that stands in the wrong place.
    pub layer: LayerName,
    /// The layer with which it does not go together.
    pub other: Option<LayerName>,
    /// What goes wrong.
    pub reason: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.layer)?;
        if let Some(other) = &self.other {
            write!(f, " and {other}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// One layer as the linter sees it.
struct Seat {
    name: LayerName,
    band: Band,
    traits: LayerTraits,
}

/// A rule about two layers, of which the first stands outside the second.
struct PairRule {
    rule: &'static str,
    reason: &'static str,
    broken: fn(outer: &Seat, inner: &Seat) -> bool,
    /// Whether the outer one is the one to move.
    blames_outer: bool,
}

const PAIRS: &[PairRule] = &[
    PairRule {
        rule: "record-inside-answer",
        reason: "what the outer layer answers or asks by itself goes unrecorded",
        broken: |outer, inner| {
            inner.traits.records && inner.band == Band::Record && outer.answers_for_others()
        },
        blames_outer: false,
    },
    PairRule {
        rule: "record-inside-redaction",
        reason: "the inner layer keeps what comes back before secrets are taken out of it",
        broken: |outer, inner| {
            outer.traits.redacts && inner.traits.records && !inner.is("output_cap")
        },
        blames_outer: false,
    },
    PairRule {
        rule: "spill-inside-redaction",
        reason: "the full text would be kept before secrets are taken out of it",
        broken: |outer, inner| {
            outer.traits.redacts && inner.traits.records && inner.is("output_cap")
        },
        blames_outer: false,
    },
    PairRule {
        rule: "cache-outside-approval",
        reason: "a remembered result would be handed out without anybody being asked",
        broken: |outer, inner| outer.traits.remembers && inner.traits.asks,
        blames_outer: true,
    },
    PairRule {
        rule: "cache-outside-decision",
        reason: "a remembered result would be handed out although the inner layer may refuse it",
        broken: |outer, inner| {
            outer.traits.remembers && inner.band == Band::Decide && !inner.traits.asks
        },
        blames_outer: true,
    },
    PairRule {
        rule: "retry-outside-approval",
        reason: "every attempt would ask again",
        broken: |outer, inner| outer.traits.repeats && inner.traits.asks,
        blames_outer: true,
    },
    PairRule {
        rule: "count-inside-retry",
        reason: "attempts would be counted and charged as if they were calls",
        broken: |outer, inner| {
            outer.traits.repeats && (inner.is("rate_limit") || inner.is("budget"))
        },
        blames_outer: false,
    },
    PairRule {
        rule: "rewrite-inside-decide",
        reason: "the arguments could be changed after they were decided on",
        broken: |outer, inner| {
            (outer.band == Band::Decide || outer.traits.asks) && inner.traits.rewrites
        },
        blames_outer: false,
    },
    PairRule {
        rule: "ask-before-policy",
        reason: "people would be asked about calls that are refused anyway",
        broken: |outer, inner| outer.traits.asks && inner.decides_alone(),
        blames_outer: true,
    },
    PairRule {
        rule: "limit-outside-retry",
        reason: "all attempts would share one limit, so that the second may start out of time",
        broken: |outer, inner| outer.traits.time_limit.is_some() && inner.traits.repeats,
        blames_outer: true,
    },
    PairRule {
        rule: "limit-outside-approval",
        reason: "the time a person takes to decide would count against the tool",
        broken: |outer, inner| outer.traits.time_limit.is_some() && inner.traits.asks,
        blames_outer: true,
    },
    PairRule {
        rule: "pretend-before-deciding",
        reason: "a dry run would not show what policy says",
        broken: |outer, inner| outer.is("dry_run") && inner.band == Band::Decide,
        blames_outer: true,
    },
    PairRule {
        rule: "note-outside-record",
        reason: "the line is written after the inner layer has kept its record, which then lacks it",
        broken: |outer, inner| outer.is("summary") && inner.is("receipts"),
        blames_outer: true,
    },
    PairRule {
        rule: "breaker-outside-retry",
        reason: "it would see only what came of all attempts together, so that a service that is down is tried on and on",
        broken: |outer, inner| outer.is("circuit_breaker") && inner.traits.repeats,
        blames_outer: true,
    },
    PairRule {
        rule: "same-layer-twice",
        reason: "it would do its work twice; give one of them a name of its own if that is meant",
        broken: |outer, inner| {
            outer.traits.kind.is_some()
                && outer.traits.kind == inner.traits.kind
                && outer.name == inner.name
        },
        blames_outer: false,
    },
];

impl Seat {
    fn is(&self, kind: &str) -> bool {
        self.traits.kind == Some(kind)
    }

    /// Answers calls that a recorder should see. A recorder that cannot record answers too, but that is its own matter.
    fn answers_for_others(&self) -> bool {
        self.band != Band::Record
            && (self.traits.answers || self.traits.asks || self.traits.remembers)
    }

    /// Refuses by rule and without asking.
    fn decides_alone(&self) -> bool {
        self.band == Band::Decide && self.traits.answers && !self.traits.asks
    }
}

/// Finds what is wrong with a stack, outermost layer first. A good stack has no findings.
///
/// With the deadline of a turn, limits that are longer are found as well.
///
/// ```
/// use std::time::Duration;
/// use toolgate_core::AnyLayer;
/// use toolgate_layers::{Timeout, lint};
/// let layers = [AnyLayer::new(Timeout::after(Duration::from_secs(90)))];
/// let findings = lint(&layers, Some(Duration::from_secs(60)));
/// assert_eq!(findings[0].rule, "limit-beyond-turn");
/// assert!(lint(&layers, None).is_empty());
/// ```
pub fn lint(layers: &[AnyLayer], turn_deadline: Option<Duration>) -> Vec<Finding> {
    let seat = |layer: &AnyLayer| Seat {
        name: layer.name(),
        band: layer.band(),
        traits: layer.traits(),
    };
    let seats: Vec<_> = layers.iter().map(seat).collect();
    let mut findings = Vec::new();
    for (at, outer) in seats.iter().enumerate() {
        for inner in &seats[at + 1..] {
            let broken = PAIRS.iter().filter(|pair| (pair.broken)(outer, inner));
            findings.extend(broken.map(|pair| pair.finding(outer, inner)));
        }
    }
    findings.extend(
        seats
            .iter()
            .filter_map(|seat| too_long(seat, turn_deadline)),
    );
    findings.extend(unredacted(&seats));
    findings
}

impl PairRule {
    fn finding(&self, outer: &Seat, inner: &Seat) -> Finding {
        let (layer, other) = if self.blames_outer {
            (outer, inner)
        } else {
            (inner, outer)
        };
        let (rule, reason) = (self.rule, self.reason);
        Finding {
            rule,
            layer: layer.name.clone(),
            other: Some(other.name.clone()),
            reason,
        }
    }
}

fn too_long(seat: &Seat, turn_deadline: Option<Duration>) -> Option<Finding> {
    let longer = seat.traits.time_limit? > turn_deadline?;
    let reason = "its limit is longer than the turn may take, so the turn ends first and the call is cut off";
    longer.then(|| Finding {
        rule: "limit-beyond-turn",
        layer: seat.name.clone(),
        other: None,
        reason,
    })
}

/// The first recorder of a stack that has recorders and no redaction.
fn unredacted(seats: &[Seat]) -> Option<Finding> {
    if seats.iter().any(|seat| seat.traits.redacts) {
        return None;
    }
    let recorder = seats.iter().find(|seat| seat.traits.records)?;
    let reason = "nothing takes secrets out of what it keeps";
    Some(Finding {
        rule: "record-without-redaction",
        layer: recorder.name.clone(),
        other: None,
        reason,
    })
}
