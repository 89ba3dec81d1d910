package benchstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store/redisstore"
)

// redis keeps each store under a prefix of its own.
type redis struct {
	url, base string
	mu        sync.Mutex
	made      bool
}

func newRedis(url string) *redis { return &redis{url: url, base: newSpace()} }

func (r *redis) prefix(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = true
	return r.base + "_" + name
}

func (r *redis) open(ctx context.Context, name string) (semel.Store, error) {
	return redisstore.Open(ctx, r.url, &redisstore.Options{Prefix: r.prefix(name)})
}

func (r *redis) title() string { return "bare Redis" }
func (r *redis) space() string { return r.base }

// removeBatch is how many keys are deleted at a time.
const removeBatch = 1000

func (r *redis) close(keep bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if keep || !r.made {
		return nil
	}
	c, err := redisstore.Connect(r.url, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	for _, node := range c.Nodes() {
		for cursor := uint64(0); ; {
			page, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(r.base+"*").Count(removeBatch).Build()).AsScanEntry()
			if err != nil {
				return fmt.Errorf("remove the keys under %s: %w", r.base, err)
			}
			var cmds []rueidis.Completed
			for _, key := range page.Elements {
				cmds = append(cmds, c.B().Unlink().Key(key).Build())
			}
			for _, res := range c.DoMulti(ctx, cmds...) {
				err = errors.Join(err, res.Error())
			}
			if err != nil {
				return fmt.Errorf("remove the keys under %s: %w", r.base, err)
			}
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// bareRedis is Redis without an engine: SET NX of the claim, and SET of the outcome under
// the same key, through a client with the store's settings, which batches the requests of
// concurrent callers. Values and keys are as large as the engine's. It checks no revision
// and keeps no index.
type bareRedis struct {
	client         rueidis.Client
	names          *target
	prefix         string
	claim, outcome string
}

func (r *redis) bare(_ context.Context, t *target, s sample) (loop, error) {
	data, err := s.values()
	if err != nil {
		return nil, err
	}
	c, err := redisstore.Connect(r.url, nil)
	if err != nil {
		return nil, err
	}
	return &bareRedis{c, t, r.prefix("bare"), string(data.claim), string(data.outcome)}, nil
}

func (b *bareRedis) execute(ctx context.Context, c *caller) error {
	sum := sha256.Sum256([]byte(b.names.newKey(c)))
	buf := append(c.buf[:0], b.prefix...)
	buf = append(buf, ":{"...)
	buf = strconv.AppendUint(buf, uint64(sum[0]%64), 10) // spreads the keys in a Cluster
	buf = append(buf, "}:r:"...)
	buf = append(buf, sum[:]...)
	key := string(buf)
	err := b.client.Do(ctx, b.client.B().Set().Key(key).Value(b.claim).Nx().Build()).Error()
	if rueidis.IsRedisNil(err) {
		return errors.New("a new key was there already")
	}
	if err != nil {
		return err
	}
	return b.client.Do(ctx, b.client.B().Set().Key(key).Value(b.outcome).Build()).Error()
}

func (b *bareRedis) close() error {
	b.client.Close()
	return nil
}
