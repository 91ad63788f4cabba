//! Whether CoreDNS may read imports: asked of the API server, which knows of every role and authorizer. Changes nothing.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use super::error::Error;

/// Whether an account may list and watch ServiceImports in every namespace.
pub(super) async fn may_read(
    client: &Client,
    namespace: &str,
    account: &str,
) -> Result<bool, Error> {
    for verb in ["list", "watch"] {
        let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
        let review = review(namespace, account, verb);
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|source| Error::Read {
            what: format!("whether account {namespace}/{account} may {verb} serviceimports (SubjectAccessReview)"),
            source: source.into(),
        })?;
        if !answer.status.is_some_and(|it| it.allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn review(namespace: &str, account: &str, verb: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(ResourceAttributes {
                group: Some(tombolo_api::GROUP.to_owned()),
                resource: Some("serviceimports".to_owned()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
