// Sends values to a topic with franz-go, or reads them in a group, until its input ends: `follower send|read host:port
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

	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	work, address, topic, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	seeds := kgo.SeedBrokers(strings.Split(address, ",")...)
	if work == "send" {
		send(seeds, topic)
	} else {
		read(seeds, topic, group)
	}
}

func send(seeds kgo.Opt, topic string) {
	client, err := kgo.NewClient(seeds)
	must(err)
	defer client.Close()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		value := input.Text()
		record := &kgo.Record{Topic: topic, Key: []byte(value), Value: []byte(value)}
		must(client.ProduceSync(context.Background(), record).FirstErr())
		fmt.Println(value)
	}
	must(input.Err())
}

func read(seeds kgo.Opt, topic string, group string) {
	client, err := kgo.NewClient(
		seeds, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
	)
	must(err)
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		// It tells its user of errors, and goes on by itself.
		fetches.EachError(func(_ string, _ int32, err error) { log.Print(err) })
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
	}
}
