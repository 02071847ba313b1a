//! The store as all parts see it: secrets that come from the API are encrypted in what is written, and readable in what
//! is read (SX-20).
//!
//! What is sealed is bound to what it is and whose, so that it means nothing anywhere else. What cannot be opened stays as it
//! is: whoever reads it says so. A secret stored before there was a vault is read as it stands.

use std::pin::Pin;
use std::sync::Arc;

use serde_json::json;
use tidings_core::ids::IdSource;
use tidings_store::{Attributes, Change, Condition, Error, Health, Item, Key, KeyValue, Page, Query, Store, Table};
use tidings_store::{Value, Write};

use super::cipher::Cipher;
use crate::config::Config;
use crate::{bus, messages, rules};

/// The first byte of everything that is sealed.
const FORM: u8 = 1;
/// Items looked at together.
const PAGE: usize = 500;
/// What to do about a secret that cannot be read.
pub const HOW_TO_READ: &str =
    "is encrypted with another key; set `secrets_key` to the key it was written with, or `previous_secrets_key`";

type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub struct Vault {
    inner: Arc<dyn Store>,
    places: Vec<Place>,
    seals: Cipher,
    /// What was sealed with these can be read, too.
    opens: Vec<Cipher>,
}

/// Where a table's items have secrets.
struct Place {
    table: Table,
    attribute: &'static str,
    kind: Kind,
}

#[derive(PartialEq)]
enum Kind {
    /// The attribute is a message's secret.
    Message,
    /// The attribute is a whole message, which may have one.
    Letter,
    /// The attribute is a text that may have secrets in it, and is sealed as a whole.
    Text,
}

impl Vault {
    /// # Errors
    ///
    /// If the store fails, or there is a rule or a definition that cannot be read.
    pub async fn open(config: &Config, inner: Arc<dyn Store>, ids: &Arc<dyn IdSource>) -> Result<Arc<Self>, Error> {
        let cipher = |key: &[u8; 32]| Cipher::new(key, Arc::clone(ids));
        // The configuration was checked.
        let configured = config.secrets_key.as_ref().and_then(super::configured);
        let previous = config.previous_secrets_key.as_ref().and_then(super::configured);
        let own = super::key(&*inner, &**ids, "secrets").await?;
        let place = |table: Table, attribute, kind| Place { table, attribute, kind };
        let vault = Self {
            inner,
            places: vec![
                place(messages::record::table(config.stage.as_str()), "target_secret", Kind::Message),
                place(messages::dead::table().clone(), "message", Kind::Letter),
                place(rules::record::table().clone(), "rule", Kind::Text),
                place(rules::job::table().clone(), "rules", Kind::Text),
                place(bus::table().clone(), "definition", Kind::Text),
            ],
            seals: cipher(configured.as_ref().unwrap_or(&own)),
            opens: previous.iter().chain([&own]).map(cipher).collect(),
        };
        vault.renew(rules::record::table(), "rule", rules::record::RULES, "the rule").await?;
        vault.renew(bus::table(), "definition", bus::layout::ENTITIES, "the push subscription").await?;
        Ok(Arc::new(vault))
    }

    /// Seals anew what is not sealed, or with an older key. Several nodes may do so at once: each write is for the value
    /// that it was made from.
    async fn renew(&self, table: &Table, attribute: &'static str, partition: &str, what: &str) -> Result<(), Error> {
        let place = Place { table: table.clone(), attribute, kind: Kind::Text };
        let mut query = Query::new(partition).limit(PAGE);
        loop {
            let page = self.inner.query(table, &query).await?;
            for item in page.items {
                let (Some(before), key) = (item.get(attribute).cloned(), table.key_of(&item)?) else { continue };
                let context = place.context(&key);
                let (readable, is_current) = match &before {
                    Value::B(sealed) => (self.unsealed(&context, sealed), self.is_current(sealed)),
                    Value::S(text) => (Some(text.clone()), !may_have_secrets(text)),
                    _ => continue,
                };
                let Some(readable) = readable else {
                    let name = key.sort.as_ref().map(text_of).unwrap_or_default();
                    return Err(Error::Open(format!("{what} `{name}` {HOW_TO_READ}")));
                };
                if is_current {
                    continue;
                }
                let sealed = Value::B(self.sealed(&context, &readable));
                let write = Write::update(table, key, vec![Change::Set(attribute.into(), sealed)])
                    .when(Condition::Equals(attribute.into(), before));
                match self.inner.transact(vec![write]).await {
                    Ok(()) | Err(Error::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if page.next.is_none() {
                return Ok(());
            }
            query = query.after(page.next);
        }
    }

    fn place(&self, table: &Table) -> Option<&Place> {
        self.places.iter().find(|place| place.table.name() == table.name())
    }

    /// Whether writes have to do with secrets: all of messages, of the others those that write the attribute.
    fn touches(&self, writes: &[Write]) -> bool {
        writes.iter().any(|write| {
            self.place(write.table()).is_some_and(|place| match write {
                Write::Put { item, .. } if place.kind == Kind::Text => item.get(place.attribute).is_some(),
                Write::Packed { item, .. } if place.kind == Kind::Text => item.has(place.attribute),
                Write::Update { changes, .. } if place.kind == Kind::Text => {
                    changes.iter().any(|change| matches!(change, Change::Set(name, _) if **name == *place.attribute))
                }
                _ => place.kind != Kind::Text,
            })
        })
    }

    fn sealed(&self, context: &str, content: &str) -> Vec<u8> {
        let sealed = self.seals.seal(context, content.as_bytes());
        [&[FORM], self.seals.id().as_slice(), &sealed].concat()
    }

    fn unsealed(&self, context: &str, sealed: &[u8]) -> Option<String> {
        let sealed = sealed.strip_prefix(&[FORM])?;
        let (id, sealed) = sealed.split_first_chunk::<4>()?;
        let mut keys = [&self.seals].into_iter().chain(&self.opens).filter(|cipher| cipher.id() == *id);
        keys.find_map(|cipher| String::from_utf8(cipher.open(context, sealed)?).ok())
    }

    fn is_current(&self, sealed: &[u8]) -> bool {
        sealed.strip_prefix(&[FORM]).is_some_and(|rest| rest.starts_with(&self.seals.id()))
    }

    /// Seals what is secret in writes; says where each of them may have secrets.
    fn seal_all(&self, writes: &mut [Write]) -> Vec<Option<&Place>> {
        writes.iter_mut().map(|write| self.place(write.table()).inspect(|place| self.seal(place, write))).collect()
    }

    fn seal(&self, place: &Place, write: &mut Write) {
        if let Write::Packed { item, condition } = write
            && item.has(place.attribute)
            && let Ok(unpacked) = item.item()
        {
            *write = Write::put(item.table(), unpacked).when(condition.clone());
        }
        match write {
            Write::Put { table, item, .. } => {
                // Most have no secret, and nothing more is asked of them.
                if item.get(place.attribute).is_some()
                    && let Ok(key) = table.key_of(item)
                {
                    place.change(item, &key, |context, value| match value {
                        Value::S(text) if place.is_secret(text) => Some(Value::B(self.sealed(context, text))),
                        _ => None,
                    });
                }
            }
            Write::Update { key, changes, .. } => {
                for change in changes {
                    if let Change::Set(name, value @ Value::S(_)) = change
                        && **name == *place.attribute
                        && let Some(text) = value.as_str().filter(|text| place.is_secret(text))
                    {
                        *value = Value::B(self.sealed(&place.context(key), text));
                    }
                }
            }
            Write::Packed { .. } | Write::Delete { .. } | Write::Check { .. } => {}
        }
    }

    fn unseal(&self, table: &Table, item: &mut Item) {
        // Most have no secret, and nothing more is asked of them.
        let is_sealed = |place: &&Place| matches!(item.get(place.attribute), Some(Value::B(_) | Value::M(_)));
        let Some(place) = self.place(table).filter(is_sealed) else { return };
        let Ok(key) = table.key_of(item) else { return };
        place.change(item, &key, |context, value| match value {
            Value::B(sealed) => self.unsealed(context, sealed).map(Value::S),
            _ => None,
        });
    }

    /// What a failed transaction found.
    fn unseal_found(&self, places: &[Option<&Place>], error: &mut Error) {
        let Error::Conflict { failed } = error else { return };
        for failed in failed {
            if let (Some(Some(place)), Some(found)) = (places.get(failed.write), &mut failed.found) {
                self.unseal(&place.table, found);
            }
        }
    }
}

impl Place {
    /// What a value of an item is sealed for. A message's is the same wherever the message is.
    fn context(&self, key: &Key) -> String {
        match self.kind {
            Kind::Message => message_context(&text_of(&key.partition)),
            _ => json!([self.table.name(), self.attribute, text_of(&key.partition), key.sort.as_ref().map(text_of)])
                .to_string(),
        }
    }

    fn is_secret(&self, text: &str) -> bool {
        self.kind != Kind::Text || may_have_secrets(text)
    }

    /// Puts another value in the place of the one that may be secret, if `with` gives one.
    fn change(&self, item: &mut Item, key: &Key, with: impl Fn(&str, &Value) -> Option<Value>) {
        if self.kind != Kind::Letter {
            if let Some(new) = item.get(self.attribute).and_then(|value| with(&self.context(key), value)) {
                item.0.insert(self.attribute, new);
            }
            return;
        }
        let Some(Value::M(message)) = item.get(self.attribute) else { return };
        let Some(new) = message.get("target_secret").and_then(|value| {
            let id = message.get("message_id").and_then(Value::as_str).unwrap_or_default();
            with(&message_context(id), value)
        }) else {
            return;
        };
        let mut message: Attributes = message.clone();
        message.insert("target_secret", new);
        item.0.insert(self.attribute, Value::M(message));
    }
}

fn message_context(id: &str) -> String {
    json!(["message", "target_secret", id]).to_string()
}

/// Most rules and definitions have none, and stay readable.
fn may_have_secrets(text: &str) -> bool {
    text.contains("secret")
}

fn text_of(value: &KeyValue) -> String {
    match value {
        KeyValue::S(text) => text.clone(),
        KeyValue::N(number) => number.to_string(),
        KeyValue::B(bytes) => format!("{bytes:?}"),
    }
}

/// Written out, so that what has nothing to do with secrets goes straight through.
impl Store for Vault {
    fn get<'a, 'b, 'c, 'd>(&'a self, table: &'b Table, key: &'c Key) -> Answer<'d, Result<Option<Item>, Error>>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
    {
        if self.place(table).is_none() {
            return self.inner.get(table, key);
        }
        Box::pin(async move {
            let mut found = self.inner.get(table, key).await?;
            found.iter_mut().for_each(|item| self.unseal(table, item));
            Ok(found)
        })
    }

    fn query<'a, 'b, 'c, 'd>(&'a self, table: &'b Table, query: &'c Query) -> Answer<'d, Result<Page, Error>>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
    {
        if self.place(table).is_none() {
            return self.inner.query(table, query);
        }
        Box::pin(async move {
            let mut page = self.inner.query(table, query).await?;
            page.items.iter_mut().for_each(|item| self.unseal(table, item));
            Ok(page)
        })
    }

    fn transact<'a, 'd>(&'a self, mut writes: Vec<Write>) -> Answer<'d, Result<(), Error>>
    where
        'a: 'd,
    {
        if !self.touches(&writes) {
            return self.inner.transact(writes);
        }
        Box::pin(async move {
            let places = self.seal_all(&mut writes);
            let result = self.inner.transact(writes).await;
            result.map_err(|mut error| {
                self.unseal_found(&places, &mut error);
                error
            })
        })
    }

    fn transact_each<'a, 'd>(&'a self, mut transactions: Vec<Vec<Write>>) -> Answer<'d, Vec<Result<(), Error>>>
    where
        'a: 'd,
    {
        if !transactions.iter().any(|writes| self.touches(writes)) {
            return self.inner.transact_each(transactions);
        }
        Box::pin(async move {
            let places: Vec<_> = transactions.iter_mut().map(|writes| self.seal_all(writes)).collect();
            let mut results = self.inner.transact_each(transactions).await;
            for (result, places) in results.iter_mut().zip(&places) {
                if let Err(error) = result {
                    self.unseal_found(places, error);
                }
            }
            results
        })
    }

    fn transact_made<'a, 'b, 'd>(
        &'a self,
        transactions: &'b mut (dyn Iterator<Item = Vec<Write>> + Send),
    ) -> Answer<'d, Vec<Result<(), Error>>>
    where
        'a: 'd,
        'b: 'd,
    {
        Box::pin(async move {
            // Few have to do with secrets; of these it is remembered where.
            let mut touched = Vec::new();
            let mut place = 0;
            let mut results = {
                let mut sealed = transactions.map(|mut writes| {
                    if self.touches(&writes) {
                        touched.push((place, self.seal_all(&mut writes)));
                    }
                    place += 1;
                    writes
                });
                self.inner.transact_made(&mut sealed).await
            };
            for (place, places) in touched {
                if let Some(Err(error)) = results.get_mut(place) {
                    self.unseal_found(&places, error);
                }
            }
            results
        })
    }

    fn health(&self) -> Health {
        self.inner.health()
    }
}
