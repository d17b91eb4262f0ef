// Walks through all that sarama does with a broker: `walk host:port`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const (
	topic = "walk"
	group = "walkers"
	count = 20
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
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

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	return config
}

func produce(address string, name string, codec sarama.CompressionCodec, values ...string) {
	config := settings()
	config.Producer.Compression = codec
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	must(err)
	for _, value := range values {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder("key-" + value), Value: sarama.StringEncoder(value),
			Headers: []sarama.RecordHeader{{Key: []byte("codec"), Value: []byte(name)}},
		})
		must(err)
	}
	must(producer.Close())
}

// member takes records until it has as many as are wanted, and commits them.
type member struct {
	found  map[string]bool
	wanted int
	done   func()
	taken  chan string
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			check(len(message.Headers) == 1, "headers are lost")
			session.MarkMessage(message, "")
			session.Commit()
			m.taken <- string(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(ctx context.Context, address string, wanted int, meanwhile func()) map[string]bool {
	client, err := sarama.NewConsumerGroup([]string{address}, group, settings())
	must(err)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	taker := &member{taken: make(chan string)}
	ended := make(chan error, 1)
	go func() { ended <- client.Consume(inner, []string{topic}, taker) }()
	found := map[string]bool{}
	for len(found) < wanted {
		select {
		case value := <-taker.taken:
			found[value] = true
		case <-ctx.Done():
			log.Fatalf("consumed %d of %d", len(found), wanted)
		}
	}
	meanwhile()
	cancel()
	must(<-ended)
	must(client.Close())
	return found
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	address := os.Args[1]
	client, err := sarama.NewClient([]string{address}, settings())
	must(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	must(err)

	hour := "3600000"
	must(admin.CreateTopic(topic, &sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &hour},
	}, false))
	fmt.Println("create")

	sent := 0
	for name, codec := range codecs {
		values := []string{}
		for number := range count {
			values = append(values, fmt.Sprintf("%s-%d", name, number))
		}
		produce(address, name, codec, values...)
		sent += len(values)
	}
	fmt.Println("produce")

	consume(ctx, address, sent, func() {
		described, err := admin.DescribeConsumerGroups([]string{group})
		must(err)
		check(described[0].State == "Stable", "the group is %s", described[0].State)
		check(len(described[0].Members) == 1, "%d members", len(described[0].Members))
	})
	fmt.Println("consume")

	partitions := map[string][]int32{topic: {0, 1, 2}}
	committed, err := admin.ListConsumerGroupOffsets(group, partitions)
	must(err)
	total := int64(0)
	for _, block := range committed.Blocks[topic] {
		total += block.Offset
	}
	check(total == int64(sent), "committed %d", total)
	produce(address, "more", sarama.CompressionNone, "more-1")
	again := consume(ctx, address, 1, func() {})
	check(len(again) == 1 && again["more-1"], "consumed %v again", again)
	fmt.Println("commit")

	topics, err := admin.ListTopics()
	must(err)
	check(len(topics) == 1 && topics[topic].NumPartitions == 3, "listed %v", topics)
	_, err = admin.DescribeTopics([]string{topic})
	must(err)
	groups, err := admin.ListConsumerGroups()
	must(err)
	check(len(groups) == 1 && groups[group] == "consumer", "listed %v", groups)
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	must(err)
	check(end > 0, "the end is %d", end)
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	must(err)
	for _, each := range entries {
		check(each.Name != "retention.ms" || each.Value == hour, "retention.ms is %s", each.Value)
	}
	must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationDelete},
	}, false))
	must(admin.CreatePartitions(topic, 4, nil, false))
	must(admin.DeleteRecords(topic, map[int32]int64{0: 1}))
	_, _, err = admin.DescribeCluster()
	must(err)
	fmt.Println("describe")

	must(admin.DeleteConsumerGroup(group))
	must(admin.DeleteTopic(topic))
	must(admin.Close())
	fmt.Println("delete")
}
