//go:build !unix

package cli

// onlyOurs reports whether nobody else can write a file or a directory, which isn't known
// here.
func onlyOurs(string) bool { return false }
