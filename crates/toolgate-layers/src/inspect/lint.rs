//! Finds hazards in the order of a stack, from the capabilities that its layers declare.
//!
//! The builder rejects a stack whose bands are out of order. The linter looks closer: at layers of
//! one band, at layers that were allowed outside their band, and at limits that contradict each
//! other.

use std::{fmt, time::Duration};

use serde::Serialize;
use toolgate_core::{AnyLayer, Band, Layer, LayerCapabilities, LayerName};

/// A hazard in a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LintFinding {
    /// The rule that was broken.
    pub rule: &'static str,
    /// The layer in the wrong position.
    pub layer: LayerName,
    /// The layer that it conflicts with.
    pub other: Option<LayerName>,
    /// The consequence.
    pub reason: &'static str,
}

impl fmt::Display for LintFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.layer)?;
        if let Some(other) = &self.other {
            write!(f, " and {other}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// One layer as the linter sees it.
struct LintedLayer {
    name: LayerName,
    band: Band,
    traits: LayerCapabilities,
    /// True if it wraps only the calls of a matcher.
    restricted: bool,
}

/// A rule about two layers, of which the first is outside the second.
struct PairRule {
    rule: &'static str,
    reason: &'static str,
    broken: fn(outer: &LintedLayer, inner: &LintedLayer) -> bool,
    /// True if the outer layer is the one to move.
    blames_outer: bool,
}

const PAIR_RULES: &[PairRule] = &[
    PairRule {
        rule: "record-inside-answer",
        reason: "calls that the outer layer answers or suspends by itself are not recorded",
        broken: |outer, inner| {
            inner.traits.records && inner.band == Band::Record && outer.answers_for_others()
        },
        blames_outer: false,
    },
    PairRule {
        rule: "record-inside-redaction",
        reason: "the inner layer stores results before they are redacted",
        broken: |outer, inner| {
            // Stored long results have a rule of their own with a better explanation.
            outer.traits.redacts && inner.traits.records && !inner.traits.spills
        },
        blames_outer: false,
    },
    PairRule {
        rule: "spill-inside-redaction",
        reason: "the full text would be stored before it is redacted",
        broken: |outer, inner| outer.traits.redacts && inner.traits.records && inner.traits.spills,
        blames_outer: false,
    },
    PairRule {
        rule: "cache-outside-approval",
        reason: "a cached result would be returned without approval",
        broken: |outer, inner| outer.traits.remembers && inner.traits.asks,
        blames_outer: true,
    },
    PairRule {
        rule: "cache-outside-decision",
        reason: "a cached result would be returned although the inner layer may block the call",
        broken: |outer, inner| {
            outer.traits.remembers && inner.band == Band::Decide && !inner.traits.asks
        },
        blames_outer: true,
    },
    PairRule {
        rule: "retry-outside-approval",
        reason: "every attempt would request approval again",
        broken: |outer, inner| outer.traits.repeats && inner.traits.asks,
        blames_outer: true,
    },
    PairRule {
        rule: "count-inside-retry",
        reason: "attempts would be counted and charged as if they were calls",
        broken: |outer, inner| outer.traits.repeats && inner.traits.counts,
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
        reason: "approval would be requested for calls that are blocked anyway",
        broken: |outer, inner| outer.traits.asks && inner.decides_alone(),
        blames_outer: true,
    },
    PairRule {
        rule: "limit-outside-retry",
        reason: "all attempts would share one limit, so that a retry may start with no time left",
        broken: |outer, inner| outer.traits.time_limit.is_some() && inner.traits.repeats,
        blames_outer: true,
    },
    PairRule {
        rule: "limit-outside-approval",
        reason: "the time an approver takes to decide would count against the tool",
        broken: |outer, inner| outer.traits.time_limit.is_some() && inner.traits.asks,
        blames_outer: true,
    },
    PairRule {
        rule: "pretend-before-deciding",
        reason: "a dry run would not show what the deciding layers do",
        broken: |outer, inner| outer.traits.dry_runs && inner.band == Band::Decide,
        blames_outer: true,
    },
    PairRule {
        rule: "note-outside-record",
        reason: "the line is written after the inner layer has stored its record, which then lacks it",
        broken: |outer, inner| outer.traits.annotates && inner.traits.stores_notes,
        blames_outer: true,
    },
    PairRule {
        rule: "breaker-outside-retry",
        reason: "it would see only the outcome of all attempts together, so that a service that is down is retried on every call",
        broken: |outer, inner| outer.traits.breaks && inner.traits.repeats,
        blames_outer: true,
    },
    PairRule {
        rule: "same-layer-twice",
        reason: "it would do its work twice; if that is intended, give one of them another name",
        broken: |outer, inner| {
            outer.traits.kind.is_some()
                && outer.traits.kind == inner.traits.kind
                && outer.name == inner.name
        },
        blames_outer: false,
    },
];

impl LintedLayer {
    /// Checks whether the layer answers calls that a recorder should see.
    ///
    /// A recorder that cannot record answers too, but it records that itself.
    fn answers_for_others(&self) -> bool {
        self.band != Band::Record
            && (self.traits.answers || self.traits.asks || self.traits.remembers)
    }

    /// Checks whether the layer blocks calls by rule, without asking for approval.
    fn decides_alone(&self) -> bool {
        self.band == Band::Decide && self.traits.answers && !self.traits.asks
    }
}

/// Finds hazards in a stack, outermost layer first. A good stack has no findings.
///
/// With the deadline of a turn, it also finds limits that are longer than the deadline.
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
pub fn lint(layers: &[AnyLayer], turn_deadline: Option<Duration>) -> Vec<LintFinding> {
    let seat = |layer: &AnyLayer| LintedLayer {
        name: layer.name(),
        band: layer.band(),
        traits: layer.capabilities(),
        restricted: layer.matcher().is_some(),
    };
    let seats: Vec<_> = layers.iter().map(seat).collect();
    let mut findings = Vec::new();
    // All pairs, not only neighbours: a hazard does not go away because a harmless layer stands
    // between.
    for (at, outer) in seats.iter().enumerate() {
        for inner in &seats[at + 1..] {
            let broken = PAIR_RULES.iter().filter(|pair| (pair.broken)(outer, inner));
            findings.extend(broken.map(|pair| pair.create_finding(outer, inner)));
        }
    }
    findings.extend(
        seats
            .iter()
            .filter_map(|seat| find_long_limit(seat, turn_deadline)),
    );
    findings.extend(find_unredacted_recorder(&seats));
    findings.extend(find_unasked_requirement(&seats));
    findings
}

impl PairRule {
    /// Creates the finding about two layers that break the rule.
    fn create_finding(&self, outer: &LintedLayer, inner: &LintedLayer) -> LintFinding {
        let (layer, other) = if self.blames_outer {
            (outer, inner)
        } else {
            (inner, outer)
        };
        let rule = self.rule;
        let reason = self.reason;
        LintFinding {
            rule,
            layer: layer.name.clone(),
            other: Some(other.name.clone()),
            reason,
        }
    }
}

/// Finds a time limit that is longer than the turn's deadline.
fn find_long_limit(seat: &LintedLayer, turn_deadline: Option<Duration>) -> Option<LintFinding> {
    let longer = seat.traits.time_limit? > turn_deadline?;
    let reason = "its limit is longer than the turn's deadline, so the turn ends first and interrupts the call";
    longer.then(|| LintFinding {
        rule: "limit-beyond-turn",
        layer: seat.name.clone(),
        other: None,
        reason,
    })
}

/// Finds the first recorder of a stack that has no redaction.
fn find_unredacted_recorder(seats: &[LintedLayer]) -> Option<LintFinding> {
    if seats.iter().any(|seat| seat.traits.redacts) {
        return None;
    }
    let recorder = seats.iter().find(|seat| seat.traits.records)?;
    let reason = "nothing redacts what it stores";
    Some(LintFinding {
        rule: "record-without-redaction",
        layer: recorder.name.clone(),
        other: None,
        reason,
    })
}

/// Finds the first layer that may require approval without a layer further in that asks for it.
fn find_unasked_requirement(seats: &[LintedLayer]) -> Option<LintFinding> {
    let unasked = |at: usize, seat: &LintedLayer| {
        // One that is restricted does not see all the calls of a layer that is not.
        let asks =
            |inner: &LintedLayer| inner.traits.asks && (seat.restricted || !inner.restricted);
        seat.traits.requires_approval && !seats[at + 1..].iter().any(asks)
    };
    let (_, seat) = seats
        .iter()
        .enumerate()
        .find(|(at, seat)| unasked(*at, seat))?;
    Some(LintFinding {
        rule: "require-without-approval",
        layer: seat.name.clone(),
        other: None,
        reason: "no approval layer further in asks for the approval that it requires, so those calls are blocked",
    })
}
