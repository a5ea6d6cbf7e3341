__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global float* restrict out0) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = (int)get_group_id(0);
    const int part = block;
    const int q = part / 13;
    const int begin = part % 13 * 64;
    const int p = (begin < 720 ? begin : 720) + lane;
    const float v2 = in2[q];
    float a0 = 0.0f;
    for (int r = 0; r < 9; r++) {
        const float v0 = in1[q * 9 + r];
        const float v1 = r / 3 + p / 28 + -1 >= 0 && r / 3 + p / 28 + -1 < 28 && r % 3 + p % 28 + -1 >= 0 && r % 3 + p % 28 + -1 < 28 ? (in0[q * 784 + (r / 3) * 28 + r % 3 + p + -29]) : 0;
        const float v3 = v0 * v1;
        a0 = v3 + a0;
    }
    const float v4 = a0;
    const float v5 = v4 + v2;
    const float v6 = v5 < 0.0f ? 0.0f : v5;
    out0[q * 784 + p] = v6;
}
