package config

// quotas checks that one answer can't use up a quota. Otherwise its caller could begin
// only one call in each window.
func (v *validator) quotas() {
	q := v.c.Quotas
	for path, bytes := range map[string]Size{"quotas.principal_bytes": q.PrincipalBytes, "quotas.tenant_bytes": q.TenantBytes} {
		for i := range v.c.Operations {
			if op := &v.c.Operations[i]; bytes > 0 && bytes < op.MaxResult {
				v.bad(path, "raise it, or lower max_result", "%v is less than the %v that one result of the operation %s may have", bytes, op.MaxResult, op.Name)
				break
			}
		}
	}
}
