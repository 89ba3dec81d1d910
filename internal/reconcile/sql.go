package reconcile

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/semelhq/semel/safehttp"
)

// Driver names the driver that the program registers with database/sql.
const Driver = "pgx"

// query asks a database, in a transaction that can only read. The rows are an answer like a
// vendor's. Errors of databases quote the query and its values, so they don't come out.
func (st *Settler) query(ctx context.Context, address string, values map[string]string) (*safehttp.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, safehttp.DefaultTimeout)
	defer cancel()
	db, err := sql.Open(Driver, address)
	if err != nil {
		return nil, errors.New("the database can't be opened: there is no driver for it, or its URL is wrong")
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, broken(ctx, err, "there is no connection to the database")
	}
	defer tx.Rollback() //nolint:errcheck // it has changed nothing
	rows, err := tx.QueryContext(ctx, st.set.Query, values[st.source.Values[0].Name])
	if err != nil {
		return nil, broken(ctx, err, "the database broke off")
	}
	defer rows.Close()
	list, err := texts(rows)
	if err != nil {
		return nil, err
	}
	if err := rows.Err(); err != nil {
		return nil, broken(ctx, err, "the database broke off")
	}
	body, err := json.Marshal(map[string]any{"rows": list})
	return &safehttp.Answer{Status: http.StatusOK, Body: body}, err
}

// texts are the rows up to an error of theirs, with the text of each value by its column. Null
// has none.
func texts(rows *sql.Rows) (list []map[string]string, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, errors.New("the database names no columns")
	}
	list = []map[string]string{} // none is an answer too
	for size := 0; rows.Next(); {
		if len(list) > 0 {
			return nil, errors.New("the query finds several rows: make it find the one of the call")
		}
		cells := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, errors.New("a column has no text: cast it, as in amount::text")
		}
		row := map[string]string{}
		for i, name := range columns {
			if size += len(cells[i].String); cells[i].Valid {
				row[name] = cells[i].String
			}
		}
		if size > maxAnswer {
			return nil, fmt.Errorf("the rows have more than %d bytes", maxAnswer)
		}
		list = append(list, row)
	}
	return list, nil
}

// broken says why a database gave no rows: it took too long, or refused, or else what is given.
func broken(ctx context.Context, err error, otherwise string) error {
	_, refused := errors.AsType[interface {
		error
		SQLState() string
	}](err)
	switch {
	case ctx.Err() != nil:
		return errors.New("the database doesn't answer in time")
	case refused:
		return errors.New("the database refuses the query, or the user")
	}
	return errors.New(otherwise)
}
