// Walks through all that @platformatic/kafka does with a broker: `node platformatic.mjs host:port`.

import assert from 'node:assert/strict'
import zlib from 'node:zlib'
import { Admin, Consumer, ListOffsetTimestamps, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [address] = process.argv.slice(2)
const base = { clientId: 'walk', bootstrapBrokers: [address] }
// Node has zstd since 22.15.
const codecs = ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])]
const count = 20
const admin = new Admin(base)

const [made] = await admin.createTopics({ topics: ['walk'], partitions: 3, replicas: 1, configs: [{ name: 'retention.ms', value: '3600000' }] })
assert.equal(made.name, 'walk')
assert.equal(made.partitions, 3)
assert.notEqual(made.id, '00000000-0000-0000-0000-000000000000')
console.log('create')

const producer = new Producer({ ...base, serializers: stringSerializers, idempotent: true })
const sent = new Set()
for (const compression of codecs) {
  const messages = Array.from({ length: count }, (_, number) => {
    sent.add(`${compression}-${number}`)
    return { topic: 'walk', key: `key-${number}`, value: `${compression}-${number}`, headers: { codec: compression } }
  })
  await producer.send({ messages, compression })
}
await producer.close()
console.log('produce')

async function consume (wanted) {
  const consumer = new Consumer({
    ...base, groupId: 'walkers', deserializers: stringDeserializers, sessionTimeout: 6000, heartbeatInterval: 500, autocommit: false
  })
  const stream = await consumer.consume({ topics: ['walk'], mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest' })
  const found = new Set()
  for await (const message of stream) {
    assert.equal(message.headers.get('codec'), message.value.split('-')[0])
    found.add(message.value)
    await message.commit()
    if (found.size === wanted) break
  }
  const groups = await admin.describeGroups({ groups: ['walkers'] })
  assert.equal(groups.get('walkers').state, 'STABLE')
  assert.equal(groups.get('walkers').members.size, 1)
  await stream.close()
  await consumer.close()
  return found
}

assert.deepEqual(await consume(sent.size), sent)
console.log('consume')

const [group] = await admin.listConsumerGroupOffsets({ groups: ['walkers'] })
const committed = group.topics.flatMap(topic => topic.partitions).reduce((sum, part) => sum + part.committedOffset, 0n)
assert.equal(committed, BigInt(sent.size))
const again = new Producer({ ...base, serializers: stringSerializers })
await again.send({ messages: [{ topic: 'walk', key: 'one', value: 'more-1', headers: { codec: 'more' } }] })
await again.close()
assert.deepEqual(await consume(1), new Set(['more-1']))
console.log('commit')

assert.deepEqual(await admin.listTopics(), ['walk'])
const groups = await admin.listGroups({ types: ['classic'] })
assert.deepEqual([...groups.keys()], ['walkers'])
const ends = await admin.listOffsets({
  topics: [{ name: 'walk', partitions: [0, 1, 2].map(partitionIndex => ({ partitionIndex, timestamp: ListOffsetTimestamps.LATEST })) }]
})
assert.equal(ends[0].partitions.reduce((sum, part) => sum + part.offset, 0n), BigInt(sent.size + 1))
const [config] = await admin.describeConfigs({ resources: [{ resourceType: 2, resourceName: 'walk', configurationKeys: null }] })
assert.equal(config.configs.find(each => each.name === 'retention.ms').value, '3600000')
await admin.incrementalAlterConfigs({
  resources: [{ resourceType: 2, resourceName: 'walk', configs: [{ name: 'retention.ms', configOperation: 0, value: '7200000' }] }]
})
await admin.createPartitions({ topics: [{ name: 'walk', count: 4, assignments: null }] })
await admin.describeLogDirs({ topics: [{ name: 'walk', partitions: [0] }] })
console.log('describe')

await admin.deleteGroups({ groups: ['walkers'] })
await admin.deleteTopics({ topics: ['walk'] })
assert.deepEqual(await admin.listTopics(), [])
await admin.close()
console.log('delete')
