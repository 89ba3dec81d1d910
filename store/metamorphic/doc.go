// Package metamorphic holds a test that all stores pass together: the same random
// lists of operations, on records and through an engine, give the same answers on
// the memory store, on Pebble, in PostgreSQL and in Redis. It has no code of its
// own.
//
// What is random comes from one seed, which is printed; the flag -metamorphic.seed
// repeats it, and -metamorphic.lists says how many lists there are. A list on which
// two stores differ is made as short as it can be before it is shown.
package metamorphic
