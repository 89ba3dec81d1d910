package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// right is what a program that runs on a migrated schema must be allowed to do with a table.
type right struct {
	table, privilege string
	column           string // the only one; empty: all
}

// rights are all that such a program needs: least privilege. It can delete neither what was
// archived nor an entry of the evidence log, change nothing there but erase an opening, and
// create nothing. Each is needed, as a test shows that takes one after the other away.
var rights = []right{
	{migrationTable, "SELECT", ""},
	{"semel_records", "SELECT", ""},
	{"semel_records", "INSERT", ""},
	{"semel_records", "UPDATE", ""},
	{"semel_records", "DELETE", ""},
	{clockTable, "SELECT", ""},
	{clockTable, "UPDATE", "note"},
	{"idempotency_archive", "SELECT", ""}, // to see what is there already
	{"idempotency_archive", "INSERT", ""},
	{evidenceQueue, "SELECT", ""},
	{evidenceQueue, "INSERT", ""},
	{evidenceQueue, "DELETE", ""},
	{"semel_evidence", "SELECT", ""},
	{"semel_evidence", "INSERT", ""},
	{"semel_evidence", "UPDATE", "opening"},
	{"semel_evidence_also", "SELECT", ""},
	{"semel_evidence_also", "INSERT", ""},
	{"semel_evidence_tile", "SELECT", ""},
	{"semel_evidence_tile", "INSERT", ""},
}

// grantUsage lets a role see what is in a schema at all.
func grantUsage(schema, role string) string {
	return fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", quote(schema), quote(role))
}

// grants are statements that give a role rights, one for each table.
func grants(schema, role string, list []right) []string {
	var tables []string
	of := map[string][]string{}
	for _, r := range list {
		if of[r.table] == nil {
			tables = append(tables, r.table)
		}
		privilege := r.privilege
		if r.column != "" {
			privilege += " (" + r.column + ")"
		}
		of[r.table] = append(of[r.table], privilege)
	}
	for i, table := range tables {
		tables[i] = fmt.Sprintf("GRANT %s ON %s TO %s;", strings.Join(of[table], ", "), name(schema, table), quote(role))
	}
	return tables
}

// Grants is the SQL that gives a role what a program needs that runs on a migrated schema,
// and takes away what earlier versions gave it in the same tables; it can't migrate. An empty
// schema stands for [DefaultSchema]. After a migration, grant again.
func Grants(schema, role string) string {
	schema = cmp.Or(schema, DefaultSchema)
	var tables []string
	for _, r := range rights {
		if table := name(schema, r.table); !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	// In one transaction, so that programs that run don't notice.
	lines := []string{"BEGIN;", grantUsage(schema, role), fmt.Sprintf("REVOKE ALL ON %s FROM %s;", strings.Join(tables, ", "), quote(role))}
	lines = append(lines, grants(schema, role, rights)...)
	return strings.Join(append(lines, "COMMIT;"), "\n") + "\n"
}

// ErrRights is what Open returns, wrapped, and what [Store.CheckWrites] says, if the role
// lacks rights. The text has the statements that grant them.
var ErrRights = errors.New("the role lacks rights")

// lackingSQL lists the rights in a schema that the role of the session lacks. A table that
// isn't there is for the migrations to miss.
func lackingSQL(schema string) string {
	rows := make([]string, len(rights))
	for i, r := range rights {
		rows[i] = fmt.Sprintf("('%s', '%s', '%s')", r.table, r.privilege, r.column)
	}
	literal := "'" + strings.ReplaceAll(schema, "'", "''") + "'"
	return "SELECT current_user::text, '', 'USAGE', '' FROM pg_namespace n WHERE nspname = " + literal + " AND NOT has_schema_privilege(n.oid, 'USAGE')" +
		" UNION ALL SELECT current_user::text, w.relname, w.privilege, w.col FROM (VALUES " + strings.Join(rows, ", ") + ") AS w(relname, privilege, col)" +
		" JOIN pg_class c ON c.relname = w.relname JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = " + literal +
		" WHERE NOT CASE w.col WHEN '' THEN has_table_privilege(c.oid, w.privilege) ELSE has_column_privilege(c.oid, w.col, w.privilege) END"
}

// checkRights is nil if the role may do everything that the store does, or an [ErrRights]
// that says what to type.
func (s *Store) checkRights(ctx context.Context) error {
	type lack struct {
		role string
		right
	}
	list, err := query(ctx, s, func(v values) (lack, error) {
		return lack{string(v[0]), right{string(v[1]), string(v[2]), string(v[3])}}, nil
	}, statement{sql: lackingSQL(s.opts.Schema)})
	if err != nil || len(list) == 0 {
		return err
	}
	role, statements := list[0].role, []string(nil)
	var missing []right
	for _, l := range list {
		if l.table == "" {
			statements = append(statements, grantUsage(s.opts.Schema, role))
		} else {
			missing = append(missing, l.right)
		}
	}
	statements = append(statements, grants(s.opts.Schema, role, missing)...)
	return fmt.Errorf("%w in the schema %s. Have its owner run: %s", ErrRights, s.opts.Schema, strings.Join(statements, " "))
}

// insufficientPrivilege is the SQLSTATE of what a role may not do.
const insufficientPrivilege = "42501"

// ownersOnly adds to an error of the server about the schema's migrations, if the role may not
// make or see them, who may.
func ownersOnly(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == insufficientPrivilege {
		return fmt.Errorf("%w. Connect as the owner of the schema, who alone may migrate it; what other roles need, semel migrate print --role ROLE says", err)
	}
	return err
}

// refusedRight adds to an error of the server, if a right is missing, who says which.
func refusedRight(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == insufficientPrivilege {
		return fmt.Errorf("%w. GET /readyz?verbose and semel migrate print --role ROLE say what to grant", err)
	}
	return err
}
