package toolcall

import "sync"

// Catalogue remembers the descriptions of a server's tools, by name. A tool that no list has had
// yet counts as one without annotations. Its zero value is empty; it may be used concurrently.
type Catalogue struct {
	mu    sync.Mutex
	tools map[string]Description
}

// maxTools bounds how many tools a catalogue has.
const maxTools = 10_000

// Of returns the description of a tool.
func (c *Catalogue) Of(name string) Description {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[name]
}

// Readers are the tools that only read by the server's word, in no order.
func (c *Catalogue) Readers() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, d := range c.tools {
		if d.ReadOnly {
			names = append(names, name)
		}
	}
	return names
}

// Learn takes note of the description of a tool.
func (c *Catalogue) Learn(d Description) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, old := c.tools[d.Name]; d.Name == "" || !old && len(c.tools) >= maxTools {
		return
	}
	if c.tools == nil {
		c.tools = map[string]Description{}
	}
	c.tools[d.Name] = d
}
