// Package watches builds the caches of all roles. The informers of the caches reconnect within a second, and
// record for how long a watch is down. Therefore, a role can wait instead of making a decision from a stale
// cache.
package watches
