//! Walks through all that rskafka does with a broker: `walk host:port`. It has no groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rskafka::client::{
    ClientBuilder,
    partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling},
};
use rskafka::record::Record;

const TOPIC: &str = "walk";
const COUNT: usize = 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn record(value: &str) -> Record {
    Record {
        key: Some(format!("key-{value}").into_bytes()),
        value: Some(value.as_bytes().to_vec()),
        headers: BTreeMap::from([("codec".to_owned(), b"x".to_vec())]),
        timestamp: chrono::DateTime::from_timestamp_millis(1_700_000_000_000).expect("a time"),
    }
}

async fn read(partition: &PartitionClient, from: i64, end: i64) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    let mut next = from;
    while next < end {
        let (records, _) = partition.fetch_records(next, 1..1_000_000, 1_000).await?;
        for each in records {
            assert_eq!(each.record.headers.len(), 1, "headers are lost");
            next = each.offset + 1;
            found.push(String::from_utf8(each.record.value.expect("a value"))?);
        }
    }
    Ok(found)
}

async fn walk(address: String) -> Outcome<()> {
    let client = ClientBuilder::new(vec![address]).build().await?;
    let controller = client.controller_client()?;
    controller.create_topic(TOPIC, 3, 1, 10_000).await?;
    println!("create");

    let partition = client.partition_client(TOPIC, 1, UnknownTopicHandling::Retry).await?;
    let codecs = [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ];
    let mut sent = Vec::new();
    for (name, compression) in codecs {
        let values: Vec<String> = (0..COUNT).map(|number| format!("{name}-{number}")).collect();
        let records = values.iter().map(|value| record(value)).collect();
        let offsets = partition.produce(records, compression).await?;
        assert_eq!(offsets.len(), COUNT);
        assert_eq!(offsets[0], sent.len() as i64);
        sent.extend(values);
    }
    println!("produce");

    let end = partition.get_offset(OffsetAt::Latest).await?;
    assert_eq!(end, sent.len() as i64);
    assert_eq!(partition.get_offset(OffsetAt::Earliest).await?, 0);
    assert_eq!(read(&partition, 0, end).await?, sent);
    assert_eq!(read(&partition, 33, end).await?, sent[33..]);
    println!("consume");

    let topics = client.list_topics().await?;
    assert_eq!(topics.len(), 1);
    assert_eq!(topics[0].name, TOPIC);
    assert_eq!(topics[0].partitions, BTreeSet::from([0, 1, 2]));
    partition.delete_records(10, 10_000).await?;
    assert_eq!(partition.get_offset(OffsetAt::Earliest).await?, 10);
    println!("describe");

    controller.delete_topic(TOPIC, 10_000).await?;
    assert!(client.list_topics().await?.is_empty());
    println!("delete");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let address = std::env::args().nth(1).expect("host:port");
    tokio::time::timeout(Duration::from_secs(90), walk(address)).await?
}
