__attribute__((reqd_work_group_size(1024, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part / 3 + team;
    const int p = part % 3 * 1024 + lane;
    const float v0 = in0[q * 3072 + p];
    const float v1 = in1[p];
    const float v2 = v0 + v1;
    const float v4 = v2 * 0.5f;
    const float v6 = v2 * 0.70710677f;
    const float v7 = erf(v6);
    const float v9 = v7 + 1.0f;
    const float v10 = v4 * v9;
    out0[q * 3072 + p] = v10;
}
