//! Writes under conditions, as etcd's transactions.

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::{
    super::{Attempt, Change, Condition, Error, Read},
    entry,
    failure::for_lease,
    session::{EtcdStore, header_of},
};

/// Makes a change if every condition holds, else reads the keys of the conditions.
pub(super) async fn change_if(
    store: &EtcdStore,
    conditions: &[Condition],
    key: &str,
    change: Change,
) -> Result<Attempt<(i64, bool)>, Error> {
    let step = change.step();
    let (operation, lease) = match change {
        Change::Delete => (TxnOp::delete(key, None), None),
        Change::Put { value, lease } => {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease.0));
            (TxnOp::put(key, value, options), lease)
        }
    };
    let compares: Vec<_> = conditions.iter().map(compare).collect();
    let look = |condition: &Condition| TxnOp::get(condition.key(), None);
    let looks: Vec<_> = conditions.iter().map(look).collect();
    let transaction = Txn::new()
        .when(compares)
        .and_then([operation])
        .or_else(looks);
    let answer = store
        .call(step, |client| async move {
            client.kv_client().txn(transaction).await
        })
        .await
        .map_err(|error| for_lease(error, lease))?;
    if !answer.succeeded() {
        return Ok(Attempt::Refused(reads(&answer)));
    }
    let changed = |op: &TxnOpResponse| match op {
        TxnOpResponse::Put(_) => true,
        TxnOpResponse::Delete(deletion) => deletion.deleted() > 0,
        TxnOpResponse::Get(_) | TxnOpResponse::Txn(_) => false,
    };
    let changed = answer.op_responses().iter().any(changed);
    Ok(Attempt::Done((header_of(answer.header()).1, changed)))
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
