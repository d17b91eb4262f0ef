// Walks through all that franz-go does with a broker: `walk host:port`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic = "walk"
	group = "walkers"
	count = 20
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func check(ok bool, format string, arguments ...any) {
	if !ok {
		log.Fatalf(format, arguments...)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	address := os.Args[1]
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	must(err)
	defer client.Close()
	admin := kadm.NewClient(client)

	hour := "3600000"
	made, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &hour}, topic)
	must(err)
	check(made.ID != kadm.TopicID{}, "the topic has no id")
	fmt.Println("create")

	sent := map[string]bool{}
	for name, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ProducerBatchCompression(codec))
		must(err)
		for number := range count {
			value := fmt.Sprintf("%s-%d", name, number)
			sent[value] = true
			record := &kgo.Record{
				Topic: topic, Key: fmt.Appendf(nil, "key-%d", number), Value: []byte(value),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}},
			}
			must(producer.ProduceSync(ctx, record).FirstErr())
		}
		producer.Close()
	}
	fmt.Println("produce")

	found := consume(ctx, address, len(sent), func() {
		described, err := admin.DescribeGroups(ctx, group)
		must(err)
		check(described[group].State == "Stable", "the group is %s", described[group].State)
		check(len(described[group].Members) == 1, "%d members", len(described[group].Members))
	})
	check(len(found) == len(sent), "consumed %d of %d", len(found), len(sent))
	fmt.Println("consume")

	committed, err := admin.FetchOffsets(ctx, group)
	must(err)
	total := int64(0)
	committed.Each(func(each kadm.OffsetResponse) { total += each.At })
	check(total == int64(len(sent)), "committed %d", total)
	must(client.ProduceSync(ctx, &kgo.Record{
		Topic: topic, Value: []byte("more-1"), Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte("more")}},
	}).FirstErr())
	again := consume(ctx, address, 1, func() {})
	check(len(again) == 1 && again["more-1"], "consumed %v again", again)
	fmt.Println("commit")

	topics, err := admin.ListTopics(ctx)
	must(err)
	check(len(topics) == 1 && len(topics[topic].Partitions) == 3, "listed %v", topics)
	groups, err := admin.ListGroups(ctx)
	must(err)
	check(len(groups) == 1 && groups[group].ProtocolType == "consumer", "listed %v", groups)
	lag, err := admin.Lag(ctx, group)
	must(err)
	check(lag[group].Lag.Total() == 0, "lag %d", lag[group].Lag.Total())
	for _, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){
		admin.ListEndOffsets, admin.ListStartOffsets, admin.ListCommittedOffsets, admin.ListMaxTimestampOffsets,
	} {
		offsets, err := list(ctx, topic)
		must(err)
		must(offsets.Error())
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	must(err)
	for _, each := range configs[0].Configs {
		check(each.Key != "retention.ms" || *each.Value == hour, "retention.ms is %s", *each.Value)
	}
	_, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &hour}}, topic)
	must(err)
	_, err = admin.CreatePartitions(ctx, 1, topic)
	must(err)
	_, err = admin.DescribeAllLogDirs(ctx, nil)
	must(err)
	fmt.Println("describe")

	_, err = admin.DeleteGroup(ctx, group)
	must(err)
	_, err = admin.DeleteTopic(ctx, topic)
	must(err)
	fmt.Println("delete")
}

func consume(ctx context.Context, address string, wanted int, meanwhile func()) map[string]bool {
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(address), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
	)
	must(err)
	defer consumer.Close()
	found := map[string]bool{}
	for len(found) < wanted {
		fetches := consumer.PollFetches(ctx)
		for _, each := range fetches.Errors() {
			log.Fatal(each.Err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			check(len(record.Headers) == 1, "headers are lost")
			found[string(record.Value)] = true
		})
		must(consumer.CommitUncommittedOffsets(ctx))
	}
	meanwhile()
	return found
}
