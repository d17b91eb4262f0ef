// Walks through all that KafkaJS does with a broker: `node kafkajs.mjs host:port`.

import assert from 'node:assert/strict'
import kafkajs from 'kafkajs'
import lz4 from 'lz4-napi'
import snappy from 'snappy'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
// KafkaJS brings gzip alone; others are given to it.
CompressionCodecs[CompressionTypes.Snappy] = () => ({
  compress: encoder => snappy.compress(encoder.buffer), decompress: unframed
})
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer), decompress: buffer => lz4.decompressFrame(buffer)
})

/** Snappy as Java frames it, or bare. */
async function unframed (buffer) {
  if (!buffer.subarray(0, 8).equals(Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0]))) {
    return snappy.uncompress(buffer)
  }
  const parts = []
  for (let at = 16; at < buffer.length;) {
    const size = buffer.readInt32BE(at)
    parts.push(await snappy.uncompress(buffer.subarray(at + 4, at + 4 + size)))
    at += 4 + size
  }
  return Buffer.concat(parts)
}

const [address] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'walk', brokers: [address], logLevel: logLevel.ERROR, retry: { retries: 5 } })
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4 }
const count = 20
const admin = kafka.admin()
await admin.connect()

assert.equal(await admin.createTopics({ topics: [{ topic: 'walk', numPartitions: 3, replicationFactor: 1 }] }), true)
await admin.createPartitions({ topicPartitions: [{ topic: 'walk', count: 4 }] })
console.log('create')

const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
await producer.connect()
const sent = new Set()
for (const [name, compression] of Object.entries(codecs)) {
  const messages = Array.from({ length: count }, (_, number) => {
    sent.add(`${name}-${number}`)
    return { key: `key-${number}`, value: `${name}-${number}`, headers: { codec: name } }
  })
  await producer.send({ topic: 'walk', compression, messages, acks: -1 })
}
console.log('produce')

async function consume (wanted, meanwhile = async () => {}) {
  const consumer = kafka.consumer({ groupId: 'walkers', sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 6000 })
  await consumer.connect()
  await consumer.subscribe({ topics: ['walk'], fromBeginning: true })
  const found = new Set()
  await new Promise((resolve, reject) => consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ message }) => {
      const value = message.value.toString()
      assert.equal(message.headers.codec.toString(), value.split('-')[0])
      found.add(value)
      if (found.size === wanted) resolve()
    }
  }).catch(reject))
  await meanwhile()
  await consumer.disconnect()
  return found
}

assert.deepEqual(await consume(sent.size, async () => {
  const { groups: [group] } = await admin.describeGroups(['walkers'])
  assert.equal(group.state, 'Stable')
  assert.equal(group.members.length, 1)
}), sent)
console.log('consume')

const committed = await admin.fetchOffsets({ groupId: 'walkers', topics: ['walk'] })
assert.equal(committed[0].partitions.reduce((sum, part) => sum + Math.max(0, Number(part.offset)), 0), sent.size)
await producer.send({ topic: 'walk', messages: [{ key: 'one', value: 'more-1', headers: { codec: 'more' } }] })
assert.deepEqual(await consume(1), new Set(['more-1']))
await admin.setOffsets({
  groupId: 'walkers', topic: 'walk', partitions: [0, 1, 2, 3].map(partition => ({ partition, offset: '0' }))
})
assert.deepEqual(await consume(sent.size + 1), new Set([...sent, 'more-1']))
await producer.disconnect()
console.log('commit')

assert.deepEqual(await admin.listTopics(), ['walk'])
const { groups } = await admin.listGroups()
assert.deepEqual(groups.map(each => each.groupId), ['walkers'])
const ends = await admin.fetchTopicOffsets('walk')
assert.equal(ends.reduce((sum, part) => sum + Number(part.high), 0), sent.size + 1)
await admin.fetchTopicOffsetsByTimestamp('walk', 0)
const resources = [{ type: ConfigResourceTypes.TOPIC, name: 'walk' }]
await admin.alterConfigs({ resources: [{ ...resources[0], configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
const { resources: [config] } = await admin.describeConfigs({ resources, includeSynonyms: false })
assert.equal(config.configEntries.find(each => each.configName === 'retention.ms').configValue, '7200000')
assert.equal((await admin.describeCluster()).brokers.length, Number(process.env.TOPICS_TEST_CELLS || 1))
await admin.deleteTopicRecords({ topic: 'walk', partitions: [{ partition: 0, offset: '1' }] })
console.log('describe')

await admin.deleteGroups(['walkers'])
await admin.deleteTopics({ topics: ['walk'] })
assert.deepEqual(await admin.listTopics(), [])
await admin.disconnect()
console.log('delete')
