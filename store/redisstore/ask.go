package redisstore

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// maxAsks bounds the questions of a Store that are on their way. The client keeps each, and
// a goroutine, until it is answered or its connection is given up, whoever has gone by then,
// and it has room for so many more.
const maxAsks = 256

// ask runs f, which sends what may be sent twice, and returns its answers. It returns when
// ctx ends; the question then goes on beside it.
func (s *Store) ask(ctx context.Context, f func(ctx context.Context) []rueidis.RedisResult) ([]rueidis.RedisResult, error) {
	select {
	case s.asks <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answers := make(chan []rueidis.RedisResult, 1)
	s.work.Go(func() {
		defer func() { <-s.asks }()
		// By then the client has given up a connection that is silent.
		ctx, cancel := context.WithTimeout(context.Background(), 2*s.opts.Timeout+2*time.Second)
		defer cancel()
		answers <- f(ctx)
	})
	select {
	case a := <-answers:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
