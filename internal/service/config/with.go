package config

import (
	"reflect"

	"github.com/semelhq/semel/internal/strictyaml"
)

// With returns a copy with one more operation and one more route. Their zero settings get
// their defaults, and the whole is checked like a file; errors come as [Errors]. The
// operation replaces one of the same name.
func (c *Config) With(op Operation, rt Route) (*Config, error) {
	out := strictyaml.Copy(reflect.ValueOf(c).Elem()).Addr().Interface().(*Config)
	strictyaml.FillDefaults(reflect.ValueOf(&op).Elem())
	strictyaml.FillDefaults(reflect.ValueOf(&rt).Elem())
	if have := out.operation(op.Name); have != nil {
		*have = op
	} else {
		out.Operations = append(out.Operations, op)
	}
	out.Routes = append(out.Routes, rt)
	if errs := check(strictyaml.NewReport(""), out); len(errs) > 0 {
		return nil, errs
	}
	return out, nil
}
