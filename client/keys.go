package client

// Keys finds the key of a call in progress by the name that you give it, such as your order
// number. If your program dies after sending a call, and sends it again when it is back, it
// uses the same key. Keep the keys in a table of your own database, or in files, as in the
// example. Both methods may be called concurrently.
type Keys interface {
	// For returns the key of the call with this name. The first time it makes the key, by
	// [safehttp.NewKey], and the key is durable before For returns. From then on it stays the
	// same, in this process and the next, until Done.
	For(name string) (string, error)
	// Done forgets the key of a call, once you have recorded its outcome yourself. The next For
	// with that name starts another call.
	Done(name string) error
}
