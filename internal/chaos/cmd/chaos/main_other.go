//go:build !linux

// Command chaos needs Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "chaos: this needs Linux")
	os.Exit(1)
}
