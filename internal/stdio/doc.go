// Package stdio connects programs that speak MCP over their standard input and output with HTTP: a
// [Child] is a server as Streamable HTTP has it, in front of a program that it starts, and a
// [Bridge] is a client, for a host that has started this process. Neither knows anything of keys or
// repetitions: the gateway between them does.
package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the longest message, in bytes. What a server prints beyond that isn't one.
const maxLine = 64 << 20

// nextLine reads a line without its end; nil if it is too long.
func nextLine(r *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(part) == 0 && len(line) == 0 && !long):
			return nil, err
		case long:
			return nil, nil
		}
		return bytes.TrimSpace(line), nil
	}
}

// oneLine is JSON in one line: outside strings, line feeds are white space, and inside strings they
// are escaped.
func oneLine(text []byte) []byte {
	line := append(bytes.Clone(text), '\n')
	for i, c := range text {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	return line
}
