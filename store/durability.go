package store

// Level says what a store's acknowledged records survive, by its live settings.
type Level string

// The levels, from the weakest.
const (
	// LevelUnknown: the store can't tell what its records survive. This is the lowest level.
	LevelUnknown Level = "unknown"
	// LevelProcess: nothing outlives the process.
	LevelProcess Level = "process"
	// LevelCache: acknowledged records may be lost when another node takes over,
	// and the right to execute may then be given twice.
	LevelCache Level = "cache-grade"
	// LevelRelaxed: a crash, of the server's process or of the machine, may lose the
	// last seconds.
	LevelRelaxed Level = "relaxed"
	// LevelDisk: they survive crashes of the machine, as long as its disk doesn't lose
	// acknowledged writes; they don't survive the loss of the disk, or a failover to a machine
	// that was behind.
	LevelDisk Level = "disk"
	// LevelReplicated: they survive the loss of one machine.
	LevelReplicated Level = "replicated"
)

// Durability is what a store can promise now.
type Durability struct {
	Level Level `json:"level"`
	// Settings are the settings that the level was judged by.
	Settings []Setting `json:"settings,omitempty"`
	// Unsafe has a sentence for each setting that the strict profile refuses:
	// its name, its value, and the danger. Empty: nothing is unsafe.
	Unsafe []string `json:"unsafe,omitempty"`
}

// Setting is one setting of a store, with the value in force.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}
