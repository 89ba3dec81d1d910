// Package wire has the bodies of API v1 as Go types, one for each body. The service and
// its clients use the same type, one to write and the other to read. A record has the
// same members wherever it is JSON: in the API, in the output of commands, and in an
// archive.
//
// The API's description is generated from these types, with the help of tags such as doc
// and enum.
package wire
