package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store/pgstore"
	"github.com/semelhq/semel/store/redisstore"
)

func migrateCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "migrate", Short: "Bring the schema in PostgreSQL, or the data in Redis, up to date",
		Annotations: map[string]string{"down": "there are no migrations downwards: they would have to throw away data that an earlier program can't hold. Restore the backup from before the migration"},
	}, newMigrateUp(), newMigrateStatus(), newMigratePrint())
}

func newMigrateUp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply pending migrations",
		Long: `Apply pending migrations, all or none. Any number of nodes may do so at the same time:
they wait for each other.

In Redis this makes an index of attributes, which searches use from then on. Run it when
all nodes have this version: earlier ones refuse the data afterwards.`,
		Example: `  semel migrate up --store postgres://semel@db/semel`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := loadSource(cmd, configured(cmd))
			if err != nil {
				return err
			}
			out, text := cmd.OutOrStdout(), "nothing to do"
			if strings.HasPrefix(cfg.Store.URL, "redis") {
				made, err := redisstore.Migrate(cmd.Context(), cfg.Store.URL, &redisstore.Options{Prefix: cfg.Store.Prefix})
				if made {
					text = "made the index of attributes"
				}
				if err == nil {
					_, err = fmt.Fprintln(out, text)
				}
				return inUse(err, cfg.Store.URL, false)
			}
			return withSchema(cmd, cfg.Store, func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
				made, err := pgstore.Migrate(ctx, pool, schema)
				for _, m := range made {
					fmt.Fprintf(out, "made %04d %s\n", m.Number, m.Name)
				}
				if err == nil && len(made) == 0 {
					_, err = fmt.Fprintln(out, text)
				}
				return err
			})
		},
	}
	return configFlags(cmd)
}

func newMigrateStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "List migrations, and when they were applied",
		Example: `  semel migrate status --config semel.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := loadSource(cmd, configured(cmd))
			if err != nil {
				return err
			}
			return withSchema(cmd, cfg.Store, func(ctx context.Context, pool *pgxpool.Pool, schema string) error {
				list, err := pgstore.Status(ctx, pool, schema)
				for _, m := range list {
					when := "missing"
					if !m.AppliedAt.IsZero() {
						when = m.AppliedAt.UTC().Format(time.RFC3339)
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%04d %-24s %s\n", m.Number, m.Name, when)
				}
				return err
			})
		},
	}
	return configFlags(cmd)
}

func newMigratePrint() *cobra.Command {
	var schema, role string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL of all migrations, for teams with their own tool",
		Long: `Print the SQL of all migrations, for teams with a tool of their own. With --role, print
instead the statements that grant a role the rights that the service needs; run them as
the owner of the schema, again after each migration.`,
		Example: `  semel migrate print --schema semel > semel.sql
  semel migrate print --role semel_app | psql`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if role != "" {
				_, err := io.WriteString(cmd.OutOrStdout(), pgstore.Grants(schema, role))
				return err
			}
			return pgstore.Print(cmd.OutOrStdout(), schema)
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "print the grants for this `role`")
	cmd.Flags().StringVar(&schema, "schema", pgstore.DefaultSchema, "`name` of the schema")
	return cmd
}

// withSchema connects to the database of the configured store.
func withSchema(cmd *cobra.Command, store config.Store, do func(ctx context.Context, pool *pgxpool.Pool, schema string) error) error {
	if !strings.HasPrefix(store.URL, "postgres") {
		return usage("the store is %s, which needs no migrations: name one in PostgreSQL with --store postgres://…", store.Name())
	}
	pool, err := pgxpool.New(cmd.Context(), store.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	return inUse(do(cmd.Context(), pool, store.Schema), store.URL, false)
}
