package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// right is what a program needs to be allowed to do with a table of a migrated schema.
type right struct {
	table      string
	privileges []string // with a column, if that is the only one
}

// rights are all that such a program needs: least privilege. It can't delete archived records
// or entries of the evidence log, can change nothing in that log except erase an opening, and
// can create nothing. A test takes each right away and shows that it is needed.
var rights = []right{
	{migrationTable, []string{"SELECT"}},
	{"semel_records", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{clockTable, []string{"SELECT", "UPDATE (note)"}},
	{"idempotency_archive", []string{"SELECT", "INSERT"}}, // SELECT, to see what is already there
	{evidenceQueue, []string{"SELECT", "INSERT", "DELETE"}},
	{"semel_evidence", []string{"SELECT", "INSERT", "UPDATE (opening)"}},
	{"semel_evidence_also", []string{"SELECT", "INSERT"}},
	{"semel_evidence_tile", []string{"SELECT", "INSERT"}},
}

// grantUsage lets a role use a schema at all.
func grantUsage(schema, role string) string {
	return fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", quote(schema), quote(role))
}

func (r right) grant(schema, role string) string {
	return fmt.Sprintf("GRANT %s ON %s TO %s;", strings.Join(r.privileges, ", "), name(schema, r.table), quote(role))
}

// Grants returns the SQL that gives a role what a program needs to run on a migrated schema,
// and takes away what earlier versions gave it in the same tables; the role can't migrate. An
// empty schema stands for [DefaultSchema]. After a migration, grant again.
func Grants(schema, role string) string {
	schema = cmp.Or(schema, DefaultSchema)
	var tables, lines []string
	for _, r := range rights {
		tables, lines = append(tables, name(schema, r.table)), append(lines, r.grant(schema, role))
	}
	// In one transaction, so that running programs don't notice.
	return fmt.Sprintf("BEGIN;\n%s\nREVOKE ALL ON %s FROM %s;\n%s\nCOMMIT;\n",
		grantUsage(schema, role), strings.Join(tables, ", "), quote(role), strings.Join(lines, "\n"))
}

// ErrRights is the error, wrapped, that Open and [Store.CheckWrites] return if the role lacks
// rights. Its text has the statements that grant them.
var ErrRights = errors.New("the role lacks rights")

// lackingSQL lists the rights in a schema that the session's role lacks. It skips missing
// tables: the migrations report those.
var lackingSQL = func() string {
	var rows []string
	for _, r := range rights {
		for _, p := range r.privileges {
			privilege, column, _ := strings.Cut(strings.TrimSuffix(p, ")"), " (")
			rows = append(rows, fmt.Sprintf("('%s', '%s', '%s', '%s')", r.table, p, privilege, column))
		}
	}
	return "SELECT current_user::text, '', '' FROM pg_namespace n WHERE nspname = $1::text AND NOT has_schema_privilege(n.oid, 'USAGE')" +
		" UNION ALL SELECT current_user::text, w.relname, w.item FROM (VALUES " + strings.Join(rows, ", ") + ") AS w(relname, item, privilege, col)" +
		" JOIN pg_class c ON c.relname = w.relname JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = $1::text" +
		" WHERE NOT CASE w.col WHEN '' THEN has_table_privilege(c.oid, w.privilege) ELSE has_column_privilege(c.oid, w.col, w.privilege) END"
}()

// checkRights returns nil if the role may do everything that the store does, or else an
// [ErrRights] that says what to run.
func (s *Store) checkRights(ctx context.Context) error {
	type lack struct{ role, table, privilege string }
	list, err := query(ctx, s, func(v values) (lack, error) {
		return lack{string(v[0]), string(v[1]), string(v[2])}, nil
	}, newStatement(lackingSQL, []byte(s.opts.Schema)))
	if err != nil || len(list) == 0 {
		return err
	}
	role, statements := list[0].role, []string(nil)
	if slices.Contains(list, lack{role: role}) {
		statements = append(statements, grantUsage(s.opts.Schema, role))
	}
	for _, r := range rights {
		r.privileges = slices.DeleteFunc(slices.Clone(r.privileges), func(p string) bool { return !slices.Contains(list, lack{role, r.table, p}) })
		if len(r.privileges) > 0 {
			statements = append(statements, r.grant(s.opts.Schema, role))
		}
	}
	return fmt.Errorf("%w in the schema %s. Have its owner run: %s", ErrRights, s.opts.Schema, strings.Join(statements, " "))
}

// Advice for a server's error about a missing right.
const (
	ownersOnly   = "Connect as the owner of the schema, who alone may migrate it; what other roles need, semel migrate print --role ROLE says"
	refusedRight = "GET /readyz?verbose and semel migrate print --role ROLE say what to grant"
)

// onRights adds advice to a server's error if a right is missing.
func onRights(err error, advice string) error {
	if sqlState(err) == "42501" { // insufficient privilege
		return fmt.Errorf("%w. %s", err, advice)
	}
	return err
}
