//! Writes under conditions, as etcd's transactions.

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::{
    super::{Attempt, Condition, Error, LeaseId, Read, Step},
    entry,
    failure::for_lease,
    session::{EtcdStore, header_of},
};

/// Writes a key if every condition holds.
pub(super) async fn put_if(
    store: &EtcdStore,
    conditions: &[Condition],
    key: &str,
    value: Vec<u8>,
    lease: Option<LeaseId>,
) -> Result<Attempt<i64>, Error> {
    let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
    let put = TxnOp::put(key, value, options);
    let answer = run(store, Step::Put, conditions, put)
        .await
        .map_err(|error| for_lease(error, lease))?;
    Ok(if answer.succeeded() {
        Attempt::Done(header_of(answer.header()).1)
    } else {
        Attempt::Refused(reads(&answer))
    })
}

/// Deletes a key if every condition holds.
pub(super) async fn delete_if(
    store: &EtcdStore,
    conditions: &[Condition],
    key: &str,
) -> Result<Attempt<(i64, bool)>, Error> {
    let answer = run(store, Step::Delete, conditions, TxnOp::delete(key, None)).await?;
    if !answer.succeeded() {
        return Ok(Attempt::Refused(reads(&answer)));
    }
    let deleted = answer
        .op_responses()
        .into_iter()
        .any(|op| matches!(op, TxnOpResponse::Delete(deletion) if deletion.deleted() > 0));
    Ok(Attempt::Done((header_of(answer.header()).1, deleted)))
}

/// Makes the change if every condition holds, else reads the keys of the conditions.
async fn run(
    store: &EtcdStore,
    step: Step,
    conditions: &[Condition],
    change: TxnOp,
) -> Result<TxnResponse, Error> {
    let compares: Vec<_> = conditions.iter().map(compare).collect();
    let look = |condition: &Condition| TxnOp::get(condition.key(), None);
    let looks: Vec<_> = conditions.iter().map(look).collect();
    let transaction = Txn::new().when(compares).and_then([change]).or_else(looks);
    store
        .call(step, |client| async move {
            client.kv_client().txn(transaction).await
        })
        .await
}

fn compare(condition: &Condition) -> Compare {
    let equal = CompareOp::Equal;
    match condition {
        // The revision at which a key that does not exist was made is 0.
        Condition::Absent(key) => Compare::create_revision(key.as_str(), equal, 0),
        Condition::MadeAt {
            key,
            create_revision,
        } => Compare::create_revision(key.as_str(), equal, *create_revision),
        Condition::WrittenAt { key, mod_revision } => {
            Compare::mod_revision(key.as_str(), equal, *mod_revision)
        }
    }
}

/// What the transaction read.
fn reads(answer: &TxnResponse) -> Vec<Read> {
    let (store_id, revision) = header_of(answer.header());
    let read = |op| match op {
        TxnOpResponse::Get(got) => Some(Read {
            revision,
            store_id,
            entry: got.kvs().first().and_then(entry),
        }),
        TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
    };
    answer.op_responses().into_iter().filter_map(read).collect()
}
