//go:build !unix

package peer

import "os"

// OnlyOurs reports whether nobody else can write a file or a directory, which isn't known here.
func OnlyOurs(string) bool { return false }

// readOwn reads a file. Who else can write it isn't known here.
func readOwn(file string) ([]byte, error) { return os.ReadFile(file) }
