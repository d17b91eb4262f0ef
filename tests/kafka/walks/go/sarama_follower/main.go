// Sends values to a topic with sarama, or reads them in a group, until its input ends: `follower send|read host:port
// topic group`. It prints each value that was acked, or read. With `send`, each line of the input is a value.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 1000
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 1000
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	return config
}

func main() {
	work, address, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	addresses := strings.Split(address, ",")
	if work == "send" {
		send(addresses, topic)
	} else {
		read(addresses, topic, group)
	}
}

func send(addresses []string, topic string) {
	producer, err := sarama.NewSyncProducer(addresses, settings())
	must(err)
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		value := input.Text()
		message := &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(value), Value: sarama.StringEncoder(value),
		}
		_, _, err := producer.SendMessage(message)
		must(err)
		fmt.Println(value)
	}
	must(input.Err())
	must(producer.Close())
}

type member struct{}

func (member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		fmt.Println(string(message.Value))
		session.MarkMessage(message, "")
	}
	return nil
}

func read(addresses []string, topic string, group string) {
	client, err := sarama.NewConsumerGroup(addresses, group, settings())
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		// It leaves it to its user to join again when the coordinator is away.
		if err := client.Consume(ctx, []string{topic}, member{}); err != nil {
			log.Print(err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	must(client.Close())
}
