// A client of the NATS object store that is not ours: puts, gets, lists and deletes with nats.go, for test_interop.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url, bucket, action string, names []string) error {
	connection, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if action == "make" {
		_, err = stream.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: bucket})
		return err
	}
	store, err := stream.ObjectStore(ctx, bucket)
	if err != nil {
		return err
	}
	switch action {
	case "put":
		_, err = store.Put(ctx, jetstream.ObjectMeta{Name: names[0]}, os.Stdin)
		return err
	case "link":
		target, err := store.GetInfo(ctx, names[1])
		if err != nil {
			return err
		}
		_, err = store.AddLink(ctx, names[0], target)
		return err
	case "get":
		found, err := store.Get(ctx, names[0])
		if err != nil {
			return err
		}
		if _, err = io.Copy(os.Stdout, found); err != nil {
			return err
		}
		return found.Close()
	case "list":
		found, err := store.List(ctx)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(found)
	case "delete":
		return store.Delete(ctx, names[0])
	}
	return fmt.Errorf("there is no action %s", action)
}
