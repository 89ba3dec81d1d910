package client

// Keys finds the key of a call under way by the name that you give it, such as the number
// of your order. If your program dies after it has sent a call, and sends it again when
// it is back, it uses the same key. Keep the keys in a table of your own database, or in
// files, as the example does. Both methods may be called concurrently.
type Keys interface {
	// For returns the key of the call that you know by name. The first time it makes the
	// key, by [safehttp.NewKey], and the key is durable before For returns. From then on
	// it stays the same, in this process and the next, until Done.
	For(name string) (string, error)
	// Done forgets the key of a call, once you have recorded its outcome yourself. The
	// next For with that name is another call.
	Done(name string) error
}
