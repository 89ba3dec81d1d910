package main

import (
	"hash/fnv"
	"math/rand/v2"
)

// pick chooses up to n mutants, the same number from each file if it has that many. Which ones
// it takes from a file depends only on the seed and the file.
func pick(files [][]mutant, n int, seed uint64) []mutant {
	shuffled := make([][]mutant, 0, len(files))
	for _, all := range files {
		if len(all) == 0 {
			continue
		}
		name := fnv.New64a()
		_, _ = name.Write([]byte(all[0].file)) // which never fails
		rng := rand.New(rand.NewPCG(seed, name.Sum64()))
		mixed := make([]mutant, len(all))
		for i, j := range rng.Perm(len(all)) {
			mixed[i] = all[j]
		}
		shuffled = append(shuffled, mixed)
	}
	// With fewer than one for each file, another seed takes other files.
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var chosen []mutant
	for round := 0; len(chosen) < n; round++ {
		before := len(chosen)
		for _, all := range shuffled {
			if round < len(all) && len(chosen) < n {
				chosen = append(chosen, all[round])
			}
		}
		if len(chosen) == before {
			break
		}
	}
	return chosen
}
