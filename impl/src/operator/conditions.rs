//! Conditions on objects: gives them times, and tells whether they have to be written.
//!
//! What they say is decided in `tombolo_core::conditions`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as ApiCondition, Time};
use tombolo_core::{
    conditions::Condition,
    mutant::{self, Mutant},
};

/// The conditions as the API holds them. The time of a condition moves only when its status does.
pub fn with_times(
    desired: &[Condition],
    actual: &[ApiCondition],
    now: Timestamp,
) -> Vec<ApiCondition> {
    let timed = |condition: &Condition| {
        let before = actual
            .iter()
            .find(|before| before.type_ == condition.kind.as_str())
            .filter(|before| before.status == condition.status.as_str())
            .filter(|_| !mutant::is(Mutant::TransitionTimeMoves));
        ApiCondition {
            type_: condition.kind.as_str().to_owned(),
            status: condition.status.as_str().to_owned(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            last_transition_time: before
                .map_or(Time(now), |before| before.last_transition_time.clone()),
            observed_generation: None,
        }
    };
    desired.iter().map(timed).collect()
}

/// Whether `actual` says, of the types that are ours, exactly what `desired` does.
pub fn same(desired: &[ApiCondition], actual: &[ApiCondition], ours: &[&str]) -> bool {
    let mut present = actual.iter().filter(|condition| is_ours(condition, ours));
    let equal = |wanted: &ApiCondition| {
        actual.iter().any(|condition| {
            condition.type_ == wanted.type_
                && condition.status == wanted.status
                && condition.reason == wanted.reason
                && condition.message == wanted.message
        })
    };
    desired.iter().all(equal)
        && present.all(|condition| desired.iter().any(|wanted| wanted.type_ == condition.type_))
}

/// All conditions that the object should end up with: ours as desired, and those of types that are not ours.
pub fn whole(
    desired: &[ApiCondition],
    actual: &[ApiCondition],
    ours: &[&str],
) -> Vec<ApiCondition> {
    let foreign = actual.iter().filter(|condition| !is_ours(condition, ours));
    desired.iter().chain(foreign).cloned().collect()
}

fn is_ours(condition: &ApiCondition, ours: &[&str]) -> bool {
    ours.contains(&condition.type_.as_str())
}

#[cfg(test)]
mod tests {
    use tombolo_api::conditions as api;
    use tombolo_core::{
        conditions::{ConditionType, ExportOutcome, Status, export_conditions, import_condition},
        export::Refusal,
        merge::ConflictReason,
        service::IpFamily,
    };

    use super::*;

    fn ready(status: Status, reason: &str) -> Condition {
        Condition {
            kind: ConditionType::Ready,
            status,
            reason: reason.to_owned(),
            message: "a message".to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let first = with_times(&[ready(Status::False, "Pending")], &[], at(1));

        let reworded = with_times(&[ready(Status::False, "Other")], &first, at(2));
        let flipped = with_times(&[ready(Status::True, "Ready")], &first, at(3));

        assert_eq!(first[0].last_transition_time, Time(at(1)));
        assert_eq!(reworded[0].last_transition_time, Time(at(1)));
        assert_eq!(flipped[0].last_transition_time, Time(at(3)));
    }

    #[test]
    fn a_condition_that_is_no_longer_wanted_is_a_difference_and_a_foreign_one_is_not() {
        let ours = ["Ready", "Conflict"];
        let desired = with_times(&[ready(Status::True, "Ready")], &[], at(1));
        let typed = |kind: &str| ApiCondition {
            type_: kind.to_owned(),
            ..desired[0].clone()
        };

        let with_foreign = [desired[0].clone(), typed("example.com/Seen")];
        let with_stale = [desired[0].clone(), typed("Conflict")];

        assert!(same(&desired, &with_foreign, &ours));
        assert!(!same(&desired, &with_stale, &ours));
        assert!(!same(&desired, &[], &ours));
        assert_eq!(whole(&desired, &with_foreign, &ours).len(), 2);
        assert_eq!(whole(&desired, &with_stale, &ours).len(), 1);
    }

    #[test]
    fn the_types_of_the_core_are_those_of_the_api() {
        let types = [
            ConditionType::Valid,
            ConditionType::Ready,
            ConditionType::Conflict,
        ];

        let texts = types.map(ConditionType::as_str);

        assert_eq!(texts, [api::VALID, api::READY, api::CONFLICT]);
    }

    #[test]
    fn the_reasons_of_conflicts_are_those_of_the_api() {
        let texts: Vec<_> = ConflictReason::ALL.iter().map(|it| it.as_str()).collect();

        let named = [
            api::REASON_PORT_CONFLICT,
            api::REASON_TYPE_CONFLICT,
            api::REASON_SESSION_AFFINITY_CONFLICT,
            api::REASON_SESSION_AFFINITY_CONFIG_CONFLICT,
            api::REASON_LABELS_CONFLICT,
            api::REASON_ANNOTATIONS_CONFLICT,
            api::REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT,
            api::REASON_TRAFFIC_DISTRIBUTION_CONFLICT,
            api::REASON_IP_FAMILY_CONFLICT,
        ];
        assert_eq!(texts, named);
    }

    #[test]
    fn the_reasons_of_exports_are_those_of_the_api() {
        let reasons = |outcome| {
            let conditions = export_conditions(outcome);
            let texts = conditions.into_iter().map(|condition| condition.reason);
            texts.collect::<Vec<_>>()
        };
        for (refusal, reason) in [
            (
                Refusal::NamespaceNotGlobal,
                api::REASON_NAMESPACE_NOT_GLOBAL,
            ),
            (Refusal::NoService, api::REASON_NO_SERVICE),
            (
                Refusal::InvalidServiceType,
                api::REASON_INVALID_SERVICE_TYPE,
            ),
            (
                Refusal::InvalidExportedLabels,
                api::REASON_INVALID_EXPORTED_LABELS,
            ),
            (
                Refusal::InvalidExportedAnnotations,
                api::REASON_INVALID_EXPORTED_ANNOTATIONS,
            ),
        ] {
            let refused = reasons(ExportOutcome::Refused(refusal));
            assert_eq!(refused, [reason, api::REASON_PENDING]);
        }

        assert_eq!(
            reasons(ExportOutcome::Merged(&[])),
            [
                api::REASON_VALID,
                api::REASON_READY,
                api::REASON_NO_CONFLICTS
            ]
        );
    }

    #[test]
    fn the_reasons_of_imports_are_those_of_the_api() {
        let v4 = [IpFamily::V4];
        let cases = [
            (
                import_condition(false, &v4, true),
                api::REASON_NAMESPACE_NOT_GLOBAL,
            ),
            (
                import_condition(true, &[], true),
                api::REASON_IP_FAMILY_NOT_SUPPORTED,
            ),
            (import_condition(true, &v4, false), api::REASON_PENDING),
            (import_condition(true, &v4, true), api::REASON_READY),
        ];

        for (condition, reason) in cases {
            assert_eq!(condition.reason, reason);
        }
    }
}
