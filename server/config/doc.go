// Package config reads the one file that configures the service. The file is
// YAML, decoded strictly into [Config]: a name that does not exist, a value of
// the wrong type and a setting that can't work are errors, all of them are
// reported at once, and each has a line and a column.
//
// A setting comes from the first of these that has it: a flag, a variable of
// the environment, the file, the default. [Origins] tells which one it was.
//
// In values of the file ${NAME} is replaced by a variable of the environment,
// ${NAME:-text} by text where the variable is unset or empty, and $$ by $.
package config
