//! What users may do.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

use crate::Cluster;

impl Cluster {
    /// Whether the API server lets a user, with groups besides, do something in a namespace (empty for all of them): verb, API group
    /// (empty for the core one) and resource.
    /// It learns of new roles and bindings a moment after it has taken them: wait for this before counting on one.
    ///
    /// # Errors
    /// What the API server said to the SubjectAccessReview.
    pub async fn allows(
        &self,
        (user, groups): (&str, &[String]),
        namespace: &str,
        (verb, group, resource): (&str, &str, &str),
    ) -> Result<bool, kube::Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.to_owned()),
                groups: Some(groups.to_owned()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(group.to_owned()),
                    namespace: Some(namespace.to_owned()),
                    resource: Some(resource.to_owned()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = Api::all(self.client());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}
