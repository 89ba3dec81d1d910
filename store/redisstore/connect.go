package redisstore

import (
	"fmt"

	"github.com/redis/rueidis"
)

// Connect makes a client with the settings that Open has for an address, for
// programs that compare the store with Redis itself. The caller closes it.
func Connect(address string, opts *Options) (rueidis.Client, error) {
	o, err := opts.checked()
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	var l link
	if l.option, l.cluster, err = parse(address, &o); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return l.dial(l.option)
}
