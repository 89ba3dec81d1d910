// Package config reads the one file that configures the service. The file is YAML,
// decoded strictly into [Config]: an unknown name, a value of the wrong type and a
// setting that can't work are errors. All errors are reported at once, each with its line
// and column.
//
// Later sources override earlier ones: the default, the file, an environment variable, a
// flag. [Origins] says which one set a setting.
//
// In values of the file, ${NAME} is replaced by an environment variable, ${NAME:-text} by
// text if the variable is unset or empty, and $$ by $.
package config
