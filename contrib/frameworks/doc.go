// Package frameworks tries guards of semelhttp in web frameworks, each wired as
// docs/frameworks.md says, behind a real server and on PostgreSQL, and writes the page's
// tables of what clients got and what the database had.
//
// It is a module of its own, so that users of Semel don't get the frameworks. It has only
// tests.
package frameworks
