package auth

import (
	"fmt"
	"io"
	"os"
	"runtime"
)

// ReadFile reads a file that says who may call, or proves who speaks: a token, a key, a
// secret. It refuses a file that everybody on the machine can write, because that proves
// nothing, and one of more than largest bytes. It doesn't check modes on systems without
// them, such as Windows.
func ReadFile(name string, largest int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o002 != 0 {
		return nil, fmt.Errorf("%s can be written by everybody on this machine: chmod o-w %[1]s", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, largest+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > largest {
		return nil, fmt.Errorf("%s has more than %d bytes", name, largest)
	}
	return data, nil
}
