// Resets of a group by KafkaJS, which commits -2 for the beginning and -1 for the end, and sets offsets beyond it.
const { Kafka, logLevel } = require("kafkajs");

const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING });
const TOPIC = "resets";

async function read(count) {
  const consumer = kafka.consumer({ groupId: "g" });
  await consumer.connect();
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true });
  const found = [];
  await new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        found.push(`${partition}:${message.offset}`);
        if (found.length === count) resolve();
      },
    });
  });
  await consumer.disconnect();
  return found.sort().join(" ");
}

async function committed(admin) {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: "g", topics: [TOPIC] });
  return partitions.map((each) => each.offset).join(" ");
}

async function walk() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: 2 }] });
  const producer = kafka.producer();
  await producer.connect();
  const messages = [0, 1, 0, 1].map((partition) => ({ value: "v", partition }));
  await producer.send({ topic: TOPIC, messages });
  console.log(`read ${await read(4)}`);
  await admin.resetOffsets({ groupId: "g", topic: TOPIC, earliest: true });
  console.log(`earliest ${await committed(admin)}`);
  console.log(`read ${await read(4)}`);
  await admin.resetOffsets({ groupId: "g", topic: TOPIC, earliest: false });
  console.log(`latest ${await committed(admin)}`);
  const partitions = [{ partition: 0, offset: "77" }, { partition: 1, offset: "1" }];
  await admin.setOffsets({ groupId: "g", topic: TOPIC, partitions });
  console.log(`set ${await committed(admin)}`);
  console.log(`read ${await read(3)}`);
  await producer.disconnect();
  await admin.disconnect();
}

walk().catch((error) => {
  console.error(error);
  process.exit(1);
});
